"""Which partition a record goes to.

What lives here: `Partitioner`: the partition of a key, of the caller's own choice, or of records without either. What does not: the hash of keys
(`busway_protocol.partitioning`).
"""

from busway.cluster.metadata import ClusterMetadata
from busway.net.machine import current_machine
from busway.options import ProducerOptions
from busway_protocol.partitioning import partition_for_key


class Partitioner:
    """Chooses partitions of topics that are known.

    Records without a key stay in one partition for a batch, then go on to another one by chance, as in Kafka (KIP-480).
    """

    def __init__(self, metadata: ClusterMetadata, options: ProducerOptions) -> None:
        self._metadata = metadata
        self._partitioner = options.partitioner
        self._batch_size = options.batch_size
        self._keyless: dict[str, tuple[int, int]] = {}

    def choose(self, topic: str, key: bytes | None, size: int) -> int:
        """The partition of a record of about `size` bytes.

        Raises:
            ValueError: the caller's own partitioner names one that is not there.
        """
        count = self.count(topic)
        if self._partitioner is not None:
            return self.given(topic, self._partitioner(topic, key, count))
        if key is not None:
            return partition_for_key(key, count)
        number, used = self._keyless.get(topic, (-1, 0))
        if number < 0 or number >= count or used + size > self._batch_size:
            number, used = current_machine().chance.randrange(count), 0
        self._keyless[topic] = (number, used + size)
        return number

    def given(self, topic: str, number: int) -> int:
        """The same number.

        Raises:
            ValueError: the topic has no such partition.
        """
        count = self.count(topic)
        if not 0 <= number < count:
            raise ValueError(f"partition {number} of {topic} does not exist, it has 0 to {count - 1}")
        return number

    def count(self, topic: str) -> int:
        """How many partitions the topic has."""
        return len(self._metadata.topics[topic].partitions)
