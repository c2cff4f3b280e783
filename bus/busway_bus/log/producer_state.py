"""Producer state of a partition: sequence numbers and open transactions (KIP-98, KIP-890).

Here: validation of batches and markers.
Not here: snapshot format (`producer_entry`), last stable offset (`replication.partition_state`), requests to the
coordinator (`replication.transaction_verification`).
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from busway_bus.kernel.limits import PRODUCER_BYTES, VERIFICATION_BYTES, VERIFICATIONS_MAX
from busway_bus.kernel.transactions import EndTransaction
from busway_bus.log.producer_entry import SEQUENCES, BatchSeen, ProducerEntry, ProducersAt, from_snapshot
from busway_bus.log.producer_memory import ProducerMemory
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import TRANSACTIONAL, BatchHeader
from busway_protocol.records.control import TransactionMarker

LAST_EPOCH: Final = 2**15 - 1
NEW_EPOCH_SINCE: Final = 2
"""First transaction version whose markers bump the producer epoch (KIP-890)."""


class Ended(NamedTuple):
    """A transaction ended by a marker.

    Attributes:
        last_stable_offset: start of the oldest open transaction, else the offset after the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int


class LastOfProducer(NamedTuple):
    """Last offset of a producer's last batch, -1 for none in its epoch."""

    last_offset: int
    epoch: int


@dataclass(slots=True, eq=False)
class Verification:
    """Pending verification of a transaction's first batch with its coordinator.

    Invalid once a record or marker of the transaction is written.

    Attributes:
        lowest_sequence: of the waiting batches; no higher one may be written first.
        from_zero: each transaction has its own epoch (transaction version 2), with sequences from 0.
    """

    seen_ms: int
    epoch: int
    lowest_sequence: int
    from_zero: bool


class ProducerState:
    """The producers of one partition.

    `first_unstable_offset`: of the oldest open transaction; readable in any thread.
    """

    __slots__ = (
        "_entries",
        "_generation",
        "_held",
        "_memory",
        "_open",
        "_verifications",
        "first_unstable_offset",
    )

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._open: OrderedDict[int, int] = OrderedDict()
        """Producer id → first offset of its open transaction, ascending."""
        self._verifications: dict[int, Verification] = {}
        self.first_unstable_offset: int | None = None
        self._generation = 0
        self._memory = ProducerMemory()
        self._held = 0

    # Memory

    def join(self, memory: ProducerMemory) -> None:
        """Move this partition's memory accounting to `memory`."""
        self._memory.change(-self._held)
        self._held = 0
        self._memory = memory
        self._count()

    def leave(self) -> ProducerMemory:
        """Move the memory accounting to a private one; return the previous."""
        memory = self._memory
        self.join(ProducerMemory())
        return memory

    def in_place_of(self, other: "ProducerState") -> "ProducerState":
        self.join(other.leave())
        return self

    def _count(self) -> None:
        held = PRODUCER_BYTES * len(self._entries) + VERIFICATION_BYTES * len(self._verifications)
        self._memory.change(held - self._held)
        self._held = held

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[int, ProducerEntry]]:
        return iter(self._entries.items())

    # Transactions

    def is_open(self, producer_id: int, epoch: int) -> bool:
        return producer_id in self._open and self._entries[producer_id].epoch == epoch

    def verification(self, header: BatchHeader, now_ms: int, *, from_zero: bool) -> Verification | None:
        """Register a transactional batch's verification. None if its transaction is open.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH; POLICY_VIOLATION for a new producer at the memory limit.
        """
        producer_id, epoch = header.producer_id, header.producer_epoch
        if self.is_open(producer_id, epoch):
            return None
        self.check_epoch(producer_id, epoch)
        waiting = self._verifications.get(producer_id)
        if waiting is None:
            if self._memory.full and producer_id not in self._entries:
                raise self._memory.refusal()
            if len(self._verifications) >= VERIFICATIONS_MAX:
                del self._verifications[next(iter(self._verifications))]
            waiting = self._verifications[producer_id] = Verification(now_ms, epoch, header.base_sequence, from_zero)
            self._count()
        elif epoch > waiting.epoch:
            waiting.epoch, waiting.lowest_sequence = epoch, header.base_sequence
        elif epoch == waiting.epoch:
            waiting.lowest_sequence = min(waiting.lowest_sequence, header.base_sequence)
        waiting.from_zero = from_zero
        return waiting

    def holds(self, producer_id: int, verification: Verification | None) -> bool:
        """Whether no record or marker was written since the verification."""
        return verification is not None and self._verifications.get(producer_id) is verification

    def check_marker(self, marker: EndTransaction) -> bool:
        """Validate a transaction marker. A repeated one is written again, as in Kafka.

        Returns:
            False if there is nothing to end: no transaction is open here, and the epoch is stale, or the producer is
            unknown and memory is full. The epoch is stale if a client wrote here with a higher one outside of
            transactions. Kafka refuses the marker: the coordinator cannot complete, and the transactional id is
            unusable.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self._entries.get(marker.producer_id)
        if entry is None:
            return not self._memory.full
        stale = marker.producer_epoch < entry.epoch
        if marker.transaction_version >= NEW_EPOCH_SINCE and marker.producer_epoch == entry.epoch:
            # A transaction's records have an older epoch than its marker, unless the epochs are exhausted.
            stale = entry.transaction_start >= 0 and entry.epoch < LAST_EPOCH
        if stale and entry.transaction_start >= 0:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {marker.producer_id} has epoch {entry.epoch} now, the end of its transaction {marker.producer_epoch}",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a coordinator with epoch {entry.coordinator_epoch} has ended transactions of producer {marker.producer_id}, "
                f"the marker has {marker.coordinator_epoch}",
            )
        return not stale

    def ended_by(self, header: BatchHeader, marker: TransactionMarker) -> Ended | None:
        first_offset = self._open.get(header.producer_id)
        if first_offset is None:
            return None
        others = (offset for producer_id, offset in self._open.items() if producer_id != header.producer_id)
        return Ended(
            producer_id=header.producer_id,
            first_offset=first_offset,
            last_offset=header.last_offset,
            aborted=not marker.committed,
            last_stable_offset=next(others, header.next_offset),
        )

    def end(self, header: BatchHeader, marker: TransactionMarker, now_ms: int) -> None:
        if self._verifications.pop(header.producer_id, None) is not None:
            self._count()
        if self._open.pop(header.producer_id, None) is not None:
            self.first_unstable_offset = next(iter(self._open.values()), None)
        entry = self._entry(header, now_ms)
        entry.transaction_start = -1
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.marker_timestamp = marker.timestamp

    # Batches

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        entry = self._entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {entry.epoch} now, the batch has {epoch}",
            )

    def check(self, header: BatchHeader, verification: Verification | None = None) -> BatchSeen | None:
        """Validate a batch before writing. Return the earlier batch of a duplicate.

        `verification`: the coordinator's confirmation, for a transaction's first batch here.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, OUT_OF_ORDER_SEQUENCE_NUMBER; NOT_ENOUGH_REPLICAS
                if the verification is invalid; POLICY_VIOLATION for a new producer at the memory limit.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            if header.attributes & TRANSACTIONAL:
                self._check_transaction(header, verification, None)
            if self._memory.full:
                raise self._memory.refusal()
            return None
        if header.producer_epoch < entry.epoch:
            self.check_epoch(header.producer_id, header.producer_epoch)
        if header.producer_epoch == entry.epoch and header.base_sequence != (entry.last_sequence + 1) % SEQUENCES:
            last_sequence = header.last_sequence
            for seen in entry.batches:
                if seen.first_sequence == header.base_sequence and seen.last_sequence == last_sequence:
                    return seen
        if header.attributes & TRANSACTIONAL:
            self._check_transaction(header, verification, entry)
        self._check_sequence(header, entry)
        if entry.transaction_start >= 0 and not header.attributes & TRANSACTIONAL:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open here, a batch outside of it cannot be written",
            )
        return None

    def _check_sequence(self, header: BatchHeader, entry: ProducerEntry) -> None:
        if header.producer_epoch > entry.epoch:
            if header.base_sequence != 0:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"a new epoch of producer {header.producer_id} starts at sequence {header.base_sequence}, not 0",
                )
            return
        expected = (entry.last_sequence + 1) % SEQUENCES
        if header.base_sequence != expected:
            # Old sequences are not kept, so this is not answered as a duplicate: clients take that for an acknowledgement.
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence}, {expected} is next",
            )

    def _check_transaction(
        self, header: BatchHeader, verification: Verification | None, entry: ProducerEntry | None
    ) -> None:
        producer_id, sequence = header.producer_id, header.base_sequence
        if self.is_open(producer_id, header.producer_epoch):
            return
        if verification is None:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"no transaction of producer {producer_id} is known to be ongoing"
            )
        if not self.holds(producer_id, verification):
            # The marker of the previous transaction arrived during the verification. Kafka answers INVALID_TXN_STATE, which aborts a
            # transaction that may be ongoing. A retriable error lets the retry verify again.
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"the coordinator of producer {producer_id} has to be asked again"
            )
        first = 0 if verification.from_zero and (entry is None or not entry.packed) else verification.lowest_sequence
        if sequence > first:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sent sequence {sequence} first, {first} comes before it",
            )

    def apply(self, header: BatchHeader, now_ms: int) -> bool:
        """Apply a written or replayed batch; return whether it began a transaction."""
        if header.producer_id < 0:
            return False
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch or entry.generation != self._generation:
            entry = self._entry(header, now_ms)
        entry.seen_ms = now_ms
        entry.add(
            header.base_sequence, header.last_sequence, header.base_offset, header.last_offset, header.max_timestamp
        )
        if not header.attributes & TRANSACTIONAL:
            return False
        if self._verifications.pop(header.producer_id, None) is not None:
            self._count()
        if entry.transaction_start >= 0:
            return False
        entry.transaction_start = self._open[header.producer_id] = header.base_offset
        if self.first_unstable_offset is None:
            self.first_unstable_offset = header.base_offset
        return True

    def _entry(self, header: BatchHeader, now_ms: int) -> ProducerEntry:
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = ProducerEntry(header.producer_epoch, now_ms, generation=self._generation)
            self._entries[header.producer_id] = entry
            self._count()
        elif entry.generation != self._generation:
            entry = self._entries[header.producer_id] = entry.copy(self._generation)
        if entry.epoch != header.producer_epoch:
            entry.begin(header.producer_epoch)
        entry.seen_ms = now_ms
        return entry

    def expire(self, now_ms: int, after_ms: int) -> None:
        """Remove producers idle for `after_ms`, unless they have an open transaction.

        Kafka goes by record timestamps, and expires active producers of old records.
        """
        idle = [
            producer_id
            for producer_id, entry in self._entries.items()
            if now_ms - entry.seen_ms > after_ms and entry.transaction_start < 0
        ]
        for producer_id in idle:
            del self._entries[producer_id]
        unanswered = [
            producer_id for producer_id, asked in self._verifications.items() if now_ms - asked.seen_ms > after_ms
        ]
        for producer_id in unanswered:
            del self._verifications[producer_id]
        self._count()

    def last_records(self) -> Iterator[tuple[int, LastOfProducer]]:
        """Iterate over each producer's last batch, which compaction must keep.

        For any thread; batches may be newer than the first step.
        """
        for producer_id, entry in self._entries.copy().items():
            last = entry.last_batch
            yield producer_id, LastOfProducer(-1 if last is None else last.last_offset, entry.epoch)

    # The snapshot

    def taken(self) -> ProducersAt:
        self._generation += 1
        return ProducersAt(self._entries.copy())

    def snapshot(self) -> bytes:
        return self.taken().encode()

    @classmethod
    def from_snapshot(cls, content: bytes, now_ms: int) -> "ProducerState | None":
        entries = from_snapshot(content, now_ms)
        if entries is None:
            return None
        state = cls()
        state._entries = entries
        starts = [(entry.transaction_start, producer_id) for producer_id, entry in entries.items()]
        state._open.update((producer_id, start) for start, producer_id in sorted(starts) if start >= 0)
        state.first_unstable_offset = next(iter(state._open.values()), None)
        return state
