"""The runtime of shards in whose partitions producers' transactions may write too.

What lives here: writing a decision's records as a part of a transaction, and the marker that ends it. What does not: what the shard makes of
them (`shard.TransactionalShard`), whether the producer may (`coordinator.groups`, and its epoch the partition itself), and everything else
(`runtime`).
"""

from collections.abc import Callable
from typing import TypeVar

from busway_bus.coordinator import replies
from busway_bus.coordinator.runtime import Runtime
from busway_bus.coordinator.shard import Record, TransactionalShard
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.transactions import EndTransaction
from busway_bus.log.producer_state import ProducerState
from busway_protocol.errors import KafkaError
from busway_protocol.records.builder import BatchBuilder

T = TypeVar("T", bound=TransactionalShard)
R = TypeVar("R")


class TransactionalRuntime(Runtime[T]):
    """A runtime that knows of producers."""

    def is_open(self, number: int, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has written to the partition in a transaction that has not ended.

        Raises:
            KafkaError: as `shard`.
        """
        return self._producers(number).is_open(producer_id, producer_epoch)

    def check_epoch(self, number: int, producer_id: int, producer_epoch: int) -> None:
        """Refuse a producer that another has taken over from.

        Raises:
            KafkaError: as `shard`, and INVALID_PRODUCER_EPOCH.
        """
        self._producers(number).check_epoch(producer_id, producer_epoch)

    def _producers(self, number: int) -> ProducerState:
        self._find(number)
        try:
            partition = self._replicas.find(self._topic, number)
        except KafkaError as problem:
            raise replies.refusal(problem) from problem
        return partition.log.producers

    async def write_in_transaction(
        self, number: int, producer_id: int, producer_epoch: int, operation: Callable[[T], Decision[R]], host: str
    ) -> R:
        """As `write`, but the records count only when the producer's transaction is committed; until then they take a host's share.

        Raises:
            KafkaError: as `write`, and INVALID_PRODUCER_EPOCH where a newer producer has taken over.
        """
        loaded = self._find(number)
        shard = loaded.shard
        decision = operation(shard)
        assert not decision.due, "nobody waits for what a transaction may take back"

        def new_batch() -> BatchBuilder:
            # Every batch begins at sequence 0, as in Kafka: the broker does not send itself anything twice.
            return BatchBuilder(
                producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=0, transactional=True
            )

        def apply(record: Record, now: int) -> None:
            shard.apply_pending(record, producer_id, now, host)

        self._append(loaded, decision, new_batch, apply)
        await replies.durably(loaded.durable)
        return decision.reply

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
