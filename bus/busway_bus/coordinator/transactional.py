"""The runtime of shards in whose partitions producers' transactions may write too.

What lives here: writing a batch as a part of a transaction, and the marker that ends it. What does not: what the shard makes of
them (`shard.TransactionalShard`), whether the producer may (`coordinator.group_coordinator`, and its epoch the partition itself), and everything else
(`runtime`).
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from busway_bus.coordinator import replies
from busway_bus.coordinator.runtime import Runtime
from busway_bus.coordinator.shard import Record, TransactionalShard
from busway_bus.kernel.transactions import EndTransaction
from busway_bus.log.partition_log import PartitionLog
from busway_protocol.errors import KafkaError
from busway_protocol.records.builder import BatchBuilder

T = TypeVar("T", bound=TransactionalShard)


class TransactionalRuntime(Runtime[T]):
    """A runtime that knows of producers."""

    def is_open(self, number: int, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has written to the partition in a transaction that has not ended.

        Raises:
            KafkaError: as `shard`.
        """
        return self._log(number).producers.is_open(producer_id, producer_epoch)

    def batch_bytes_max(self, number: int) -> int:
        """The largest batch that a transaction may write to the partition, in bytes: `max.message.bytes` of the topic, as in Kafka.

        Raises:
            KafkaError: as `shard`.
        """
        return self._log(number).config.max_message_bytes

    def _log(self, number: int) -> PartitionLog:
        self._find(number)
        try:
            return self._replicas.find(self._topic, number).log
        except KafkaError as problem:
            raise replies.refusal(problem) from problem

    async def write_in_transaction(
        self, number: int, batch: BatchBuilder, records: Sequence[Record], check: Callable[[T], None], host: str
    ) -> None:
        """Append one batch of a producer's transaction; returns when it is durable.

        All of it is in the log or nothing, so that no end of the transaction comes between. Its records count only when the transaction is
        committed; until then they take a host's share.

        Args:
            batch: holds the records; its producer is the transaction's.
            check: refuses them, or not, in the moment in which they are written.

        Raises:
            KafkaError: as `write`, what `check` raises, and INVALID_PRODUCER_EPOCH where a newer producer has taken over.
        """
        loaded = self._find(number)
        shard = loaded.shard
        check(shard)

        def apply(record: Record, now: int) -> None:
            shard.apply_pending(record, batch.producer_id, now, host)

        if records:
            self._append_batch(loaded, records, batch, apply)
        await replies.durably(loaded.durable)

    async def end_transaction(self, number: int, marker: EndTransaction) -> None:
        """Write the marker and let it be in force; returns when it is durable. One that comes again changes nothing.

        Raises:
            KafkaError: as `write`, INVALID_PRODUCER_EPOCH, or TRANSACTION_COORDINATOR_FENCED.
        """
        loaded = self._find(number)
        try:
            partition = self._replicas.find(self._topic, number)
            _, durable = self._replicas.append_marker(partition, marker)
        except KafkaError as problem:
            raise replies.refusal(problem) from problem
        loaded.shard.end_transaction(marker.producer_id, self.now(), committed=marker.committed)
        self._appended(loaded, durable)
        await replies.durably(loaded.durable)
