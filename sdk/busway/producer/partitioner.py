"""Choice of a record's partition: by key, by the caller's function, or for neither.

Not here: the hash of keys (`busway_protocol.partitioning`).
"""

from busway.cluster.metadata import ClusterMetadata
from busway.net.machine import current_machine
from busway.options import ProducerOptions
from busway_protocol.partitioning import partition_for_key


class Partitioner:
    """Chooser of partitions. Records without a key stay in one for a batch, then move to a random one (KIP-480)."""

    def __init__(self, metadata: ClusterMetadata, options: ProducerOptions) -> None:
        self._metadata = metadata
        self._partitioner = options.partitioner
        self._batch_size = options.batch_size
        self._keyless: dict[str, tuple[int, int]] = {}

    def choose(self, topic: str, key: bytes | None, size: int) -> int:
        """Return the partition of a record of about `size` bytes; raise `ValueError` if it does not exist."""
        count = self.count(topic)
        if self._partitioner is not None:
            return self.given(topic, self._partitioner(topic, key, count))
        if key is not None:
            return partition_for_key(key, count)
        partition, used = self._keyless.get(topic, (-1, 0))
        if partition < 0 or partition >= count or used + size > self._batch_size:
            partition, used = current_machine().chance.randrange(count), 0
        self._keyless[topic] = (partition, used + size)
        return partition

    def given(self, topic: str, partition: int) -> int:
        count = self.count(topic)
        if not 0 <= partition < count:
            raise ValueError(f"partition {partition} of {topic} does not exist, it has 0 to {count - 1}")
        return partition

    def count(self, topic: str) -> int:
        return len(self._metadata.topics[topic].partitions)
