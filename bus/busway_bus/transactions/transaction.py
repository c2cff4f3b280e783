"""The state of one transactional id, and the effect of each event.

Here: `Transaction`, a frozen value, its next values, and its record.
Not here: whether an event is allowed (`states`, `fencing`), the table (`shard`). Epochs and ids are as in Kafka's
`TransactionMetadata` (KIP-360, KIP-890).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from busway_bus.kernel.transactions import EndTransaction
from busway_bus.transactions.records import PartitionsSchema, TransactionLogValue
from busway_bus.transactions.states import TRANSITIONS, Event, State
from busway_protocol.errors import MalformedMessage

TopicPartition = tuple[str, int]
NO_ID: Final = -1
NO_EPOCH: Final = -1
EPOCH_MAX: Final = 2**15 - 1
EPOCHS_BUMPED_SINCE: Final = 2
"""Transaction version from which each end raises the epoch (KIP-890)."""


def exhausted(epoch: int) -> bool:
    """Whether it is a producer's last epoch. One more is reserved for fencing."""
    return epoch >= EPOCH_MAX - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One transactional id.

    Attributes:
        previous_producer_id: before the last event; differs if that rotated the id.
        next_producer_id: assigned once the markers are written, as the epochs are exhausted.
        last_epoch: before the current one, for a repeated InitProducerId; not in the log, as in Kafka.
        started_ms: wall time of the first added partition; -1 without one.
        updated_ms: wall time of the last event.
        client_version: the producer's transaction version at the last event.
    """

    producer_id: int
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = -1
    updated_ms: int
    client_version: int = 0

    # Events

    def initialized(self, timeout_ms: int, epoch: int, last_epoch: int, now: int) -> "Transaction":
        return self._begun(self.producer_id, timeout_ms, epoch, last_epoch, now)

    def repeated(self, timeout_ms: int, now: int) -> "Transaction":
        """Begin again with the current epoch, after a lost response."""
        begun = self.initialized(timeout_ms, self.epoch, self.last_epoch, now)
        return replace(begun, previous_producer_id=self.previous_producer_id)

    def rotated(self, producer_id: int, timeout_ms: int, now: int, *, known: bool) -> "Transaction":
        """Begin with a new producer id.

        Args:
            known: it sent id and epoch, and may repeat them.
        """
        return self._begun(producer_id, timeout_ms, 0, self.epoch if known else NO_EPOCH, now)

    def _begun(self, producer_id: int, timeout_ms: int, epoch: int, last_epoch: int, now: int) -> "Transaction":
        return replace(
            self,
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            epoch=epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=TRANSITIONS.after(self.state, Event.INITIALIZED),
            partitions=frozenset(),
            started_ms=-1,
            updated_ms=now,
        )

    def added(self, partitions: Collection[TopicPartition], client_version: int, now: int) -> "Transaction":
        """Add partitions; the first ones begin the transaction."""
        return replace(
            self,
            previous_producer_id=self.producer_id,
            state=TRANSITIONS.after(self.state, Event.ADDED),
            partitions=self.partitions.union(partitions),
            started_ms=now if self.state.idle else self.started_ms,
            updated_ms=now,
            client_version=client_version,
        )

    def prepared(
        self, event: Event, client_version: int, now: int, *, next_producer_id: int = NO_ID, fences: bool = False
    ) -> "Transaction":
        """Decide the end.

        Args:
            event: COMMITTED or ABORTED.
            client_version: from 2 on the epoch rises, which also fences the producer.
            next_producer_id: if this end exhausts the epochs of the current one.
            fences: the coordinator aborts it: no producer may continue.
        """
        epoch, last_epoch = self.epoch, self.last_epoch
        if client_version >= EPOCHS_BUMPED_SINCE:
            epoch, last_epoch = min(epoch + 1, EPOCH_MAX), epoch
        elif fences:
            epoch, last_epoch = min(epoch + 1, EPOCH_MAX), NO_EPOCH
        return replace(
            self,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            epoch=epoch,
            last_epoch=last_epoch,
            state=TRANSITIONS.after(self.state, event),
            started_ms=now if self.state.idle else self.started_ms,
            updated_ms=now,
            client_version=client_version,
        )

    def completed(self, now: int) -> "Transaction":
        rotates = self.client_version >= EPOCHS_BUMPED_SINCE and self.next_producer_id != NO_ID
        return replace(
            self,
            producer_id=self.next_producer_id if rotates else self.producer_id,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_ID,
            epoch=0 if rotates else self.epoch,
            state=TRANSITIONS.after(self.state, Event.MARKED),
            partitions=frozenset(),
            updated_ms=now,
        )

    def marker(self, coordinator_epoch: int) -> EndTransaction:
        assert self.state.prepared
        return EndTransaction(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=self.state is State.PREPARE_COMMIT,
            coordinator_epoch=coordinator_epoch,
            transaction_version=self.client_version,
        )

    # Records

    def record(self, version: int) -> TransactionLogValue:
        value = TransactionLogValue(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None if self.state is State.EMPTY else by_topic(self.partitions),
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.started_ms,
        )
        if version >= 1:
            value.previous_producer_id = self.previous_producer_id
            value.next_producer_id = self.next_producer_id
            value.client_transaction_version = self.client_version
        return value

    @staticmethod
    def from_record(value: TransactionLogValue) -> "Transaction":
        try:
            state = State(value.transaction_status)
        except ValueError:
            raise MalformedMessage(f"{value.transaction_status} is no state of a transaction") from None
        return Transaction(
            producer_id=value.producer_id,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            epoch=value.producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
            state=state,
            partitions=frozenset(
                (topic.topic, partition)
                for topic in value.transaction_partitions or ()
                for partition in topic.partition_ids
            ),
            started_ms=value.transaction_start_timestamp_ms,
            updated_ms=value.transaction_last_update_timestamp_ms,
            client_version=value.client_transaction_version,
        )


def by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [PartitionsSchema(topic=topic, partition_ids=sorted(topics[topic])) for topic in sorted(topics)]
