"""What a partition remembers of its producers: sequence numbers, so that a retried batch is not written twice, and open transactions
(KIP-98, KIP-890).

What lives here: the producers, the transactions that they have open, the decision about a new batch and about the end of a transaction.
What does not: what is kept of one producer, and its form in a snapshot (`producer_entry`); disks and clocks; when a reader may know of the end of a
transaction (`replication.partition_state`); who is asked whether a batch belongs to one (`replication.transaction_verification`).
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
"""The transaction version from which on the end of a transaction has an epoch of its own (KIP-890)."""


class Ended(NamedTuple):
    """A transaction that a marker ends.

    Attributes:
        last_offset: that of the marker.
        last_stable_offset: where the oldest transaction begins that is open still, or the offset behind the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int


class LastOfProducer(NamedTuple):
    """What compaction must not lose of a producer: the last offset of its last batch, -1 where its epoch has none."""

    last_offset: int
    epoch: int


@dataclass(slots=True, eq=False)
class Verification:
    """A producer's question to its coordinator, asked before its first batch of a transaction; void as soon as anything of the
    transaction, its end included, is written.

    Attributes:
        lowest_sequence: of all batches that waited for an answer: none behind it may be written first.
        from_zero: whether the producer's epoch begins with the transaction (transaction version 2), and so its sequence.
    """

    seen_ms: int
    epoch: int
    lowest_sequence: int
    from_zero: bool


class ProducerState:
    """The producers of one partition.

    Attributes:
        first_unstable_offset: where the oldest open transaction begins, None where none is open; may be read in any thread.
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
        """Producers with an open transaction and where it begins, which are in the order of these offsets."""
        self._verifications: dict[int, Verification] = {}
        self.first_unstable_offset: int | None = None
        self._generation = 0
        self._memory = ProducerMemory()
        self._held = 0

    # Memory

    def join(self, memory: ProducerMemory) -> None:
        """Count what is remembered here in this from now on, and nowhere else."""
        self._memory.change(-self._held)
        self._held = 0
        self._memory = memory
        self._count()

    def leave(self) -> ProducerMemory:
        """Count here what is remembered here, and nowhere else; answers where it was counted."""
        memory = self._memory
        self.join(ProducerMemory())
        return memory

    def in_place_of(self, other: "ProducerState") -> "ProducerState":
        """Count where another did, which does not any more."""
        self.join(other.leave())
        return self

    def _count(self) -> None:
        """There are more or fewer producers."""
        held = PRODUCER_BYTES * len(self._entries) + VERIFICATION_BYTES * len(self._verifications)
        self._memory.change(held - self._held)
        self._held = held

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[int, ProducerEntry]]:
        """Every producer id that is remembered."""
        return iter(self._entries.items())

    # Transactions

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer has a transaction open, in this epoch."""
        return producer_id in self._open and self._entries[producer_id].epoch == epoch

    def verification(self, header: BatchHeader, now_ms: int, *, from_zero: bool) -> Verification | None:
        """What has to be answered with yes before a transactional batch may be written; None where its transaction is open already.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH; POLICY_VIOLATION where nothing is known of the producer, and there is no room for more.
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
        """Whether nothing was written to a producer's transaction, nor its end, since this was asked for."""
        return verification is not None and self._verifications.get(producer_id) is verification

    def check_marker(self, marker: EndTransaction) -> bool:
        """Judge the end of a transaction before it is written. One that is repeated is written again, as in Kafka.

        Returns:
            False where there is nothing to end: no transaction is open here, and the epoch is too old, or the producer is not known and
            there is no room to remember it. Anybody may write outside of
            transactions with an epoch that is higher, before the transaction has written here; Kafka refuses the marker then, gives its
            coordinator no way on, and the transactional id is of no use any more.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self._entries.get(marker.producer_id)
        if entry is None:
            return not self._memory.full
        stale = marker.producer_epoch < entry.epoch
        if marker.transaction_version >= NEW_EPOCH_SINCE and marker.producer_epoch == entry.epoch:
            # The records of a transaction have an older epoch than its end, unless there was none left.
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
        """The transaction that a marker at its final offset would end, None where none is open."""
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
        """A marker was written, now or as far as is known."""
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
        """Refuse a producer that another has taken over from.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH.
        """
        entry = self._entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {entry.epoch} now, the batch has {epoch}",
            )

    def check(self, header: BatchHeader, verification: Verification | None = None) -> BatchSeen | None:
        """Judge a batch before it is written: None to write it, or the earlier batch that it repeats.

        Args:
            verification: what its coordinator has said yes to, where the batch is the first of a transaction here.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE or OUT_OF_ORDER_SEQUENCE_NUMBER; NOT_ENOUGH_REPLICAS where the
                coordinator's word is void meanwhile; POLICY_VIOLATION where nothing is known of the producer, and there is no room for more.
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
            # Whether a sequence far behind was ever written is not known any more: clients take "duplicate" for an acknowledgement.
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
            # The end of its last transaction came while its coordinator was asked about this one. Kafka says INVALID_TXN_STATE, which costs
            # the producer a transaction that may well be ongoing; whether it is comes out when the batch is sent again.
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
        """Remember a batch of records that was written, now or as far as is known; answers whether a transaction has begun with it."""
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
        """The producer of a batch in its epoch, which may change."""
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
        """Forget producers that have been idle for `after_ms`, unless they have a transaction open.

        Kafka goes by the records' times, and so forgets a producer that writes old ones while it is at work.
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
        """What compaction must not lose, by producer id, as it is when the first is asked for or, of some, soon after; for any thread."""
        for producer_id, entry in self._entries.copy().items():
            last = entry.last_batch
            yield producer_id, LastOfProducer(-1 if last is None else last.last_offset, entry.epoch)

    # The snapshot

    def taken(self) -> ProducersAt:
        """The state as it is now, to be put into bytes later: what changes from now on changes in copies."""
        self._generation += 1
        return ProducersAt(self._entries.copy())

    def snapshot(self) -> bytes:
        """The state in Kafka's `.snapshot` format."""
        return self.taken().encode()

    @classmethod
    def from_snapshot(cls, content: bytes, now_ms: int) -> "ProducerState | None":
        """The state in a snapshot, all producers seen now; None when it is damaged, so that the caller reads the log instead."""
        entries = from_snapshot(content, now_ms)
        if entries is None:
            return None
        state = cls()
        state._entries = entries
        starts = [(entry.transaction_start, producer_id) for producer_id, entry in entries.items()]
        state._open.update((producer_id, start) for start, producer_id in sorted(starts) if start >= 0)
        state.first_unstable_offset = next(iter(state._open.values()), None)
        return state
