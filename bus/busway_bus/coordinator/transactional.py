"""Runtime of shards to which transactions of producers may write.

Here: writing a batch of a transaction, and its marker.
Not here: their effect (`shard.TransactionalShard`), checks (`group_coordinator`, the log for the epoch).
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
    def is_open(self, partition: int, producer_id: int, producer_epoch: int) -> bool:
        return self._log(partition).producers.is_open(producer_id, producer_epoch)

    def batch_bytes_max(self, partition: int) -> int:
        """Return `max.message.bytes`, which as in Kafka bounds a transaction's batch."""
        return self._log(partition).config.max_message_bytes

    def _log(self, partition: int) -> PartitionLog:
        self._find(partition)
        try:
            return self._replicas.find(self._topic, partition).log
        except KafkaError as problem:
            raise replies.refusal(problem) from problem

    async def write_in_transaction(
        self, partition: int, batch: BatchBuilder, records: Sequence[Record], check: Callable[[T], None], host: str
    ) -> None:
        """Append one batch of a transaction; return once it is durable.

        It is appended whole, so that no marker falls in between. Until the end its records are charged to a host.

        Args:
            batch: of the transaction's producer.
            check: raises to refuse the records, directly before the append.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH after a newer producer.
        """
        loaded = self._find(partition)
        shard = loaded.shard
        check(shard)

        def apply(record: Record, now: int) -> None:
            shard.apply_pending(record, batch.producer_id, now, host)

        if records:
            self._append_batch(loaded, records, batch, apply)
        await self._durably(loaded)

    async def end_transaction(self, partition: int, marker: EndTransaction) -> None:
        """Write and apply a marker; return once durable. A repeated one changes nothing.

        KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        loaded = self._find(partition)
        try:
            _, durable = self._replicas.append_marker(self._replica(loaded), marker)
        except KafkaError as problem:
            raise replies.refusal(problem) from problem
        loaded.shard.end_transaction(marker.producer_id, self.now(), committed=marker.committed)
        self._appended(loaded, durable)
        await self._durably(loaded)
