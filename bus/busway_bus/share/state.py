"""The record states of a share partition (KIP-932, KIP-1206, KIP-1222).

Here: the transitions of records, as a pure state machine.
Not here: which records a member gets (`acquisition`), the log and the persister (`partition`). The rules are those of
Kafka's `SharePartition`, except that a gap, records acquired from an earlier leader, is a `fresh` batch.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby

from busway_bus.kernel.share_state import ShareState, StateBatch
from busway_bus.share.in_flight import Acquired, Cause, Change, InFlight, InFlightBatch, Letter, RecordState, Run, note
from busway_bus.share.limits import ShareLimits
from busway_protocol.errors import ErrorCode, KafkaError


class AcknowledgeType(IntEnum):
    """A member's acknowledgement of a record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


_STATES = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """An acknowledged range, bounds included, with one type, or one per record."""

    first: int
    last: int
    types: Sequence[int]


class SharePartitionState:
    """A share partition in the memory of its leader.

    `kept`: the persisted state. ValueError: its batches contradict each other.

    Attributes:
        start: every record before it is finished.
        end: the next offset to fetch where nothing before it is available.
    """

    def __init__(self, kept: ShareState) -> None:
        assert kept.start_offset >= 0, "where to begin is decided before"
        self.state_epoch = kept.state_epoch
        self.start = self.end = kept.start_offset
        self.in_flight = InFlight(_restored(kept))
        self._maybe_available = True
        for run in self.in_flight.runs:
            self.end = run.last + 1
        self.advance()

    # State

    @property
    def in_flight_count(self) -> int:
        return self.end - self.start if self.in_flight else 0

    @property
    def open_count(self) -> int:
        """Offsets from the first active record to the last fetched.

        A record that waits only for its dead letter is not active.
        """
        first = next((run.first for run in self.in_flight.runs if run.active), self.end)
        return self.end - max(first, self.start)

    def room(self, limits: ShareLimits) -> int:
        return min(limits.in_flight - self.open_count, limits.span - self.in_flight_count)

    @property
    def complete_count(self) -> int:
        """Terminal records from `start` on, with pending writes."""
        return sum(run.last - run.first + 1 for run in self.in_flight.runs if run.terminal)

    @property
    def next_deadline_ms(self) -> int | None:
        return min((run.deadline_ms for run in self.in_flight.runs if run.locked), default=None)

    @property
    def idle(self) -> bool:
        return all(run.change is None and not run.locked for run in self.in_flight.runs)

    @property
    def has_letters(self) -> bool:
        return any(run.dead for run in self.in_flight.runs)

    @property
    def next_fetch_offset(self) -> int:
        if self._maybe_available:
            for run in self.in_flight.runs:
                if run.available:
                    return run.first
            self._maybe_available = False
        return self.end

    def can_acquire(self, limits: ShareLimits) -> bool:
        return self.next_fetch_offset != self.end or self.room(limits) > 0

    def written(self, leader_epoch: int, batches: Iterable[StateBatch]) -> ShareState:
        return ShareState(
            state_epoch=self.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=self.start,
            delivery_complete_count=self.complete_count,
            batches=tuple(batches),
        )

    # Calls of members

    def acknowledge(
        self, member_id: str, acknowledgements: Iterable[Acknowledgement], limits: ShareLimits, now_ms: int
    ) -> Change:
        """Apply acknowledgements by offset.

        The caller writes the change, then calls `commit` or `roll_back`. After INVALID_RECORD_STATE or INVALID_REQUEST
        only renewals are kept.
        """
        change = Change()
        current = [acknowledgement for acknowledgement in acknowledgements if acknowledgement.last >= self.start]
        valid, problem = self._count_valid(current)
        chunks = [chunk for acknowledgement in current[:valid] for chunk in _chunks(acknowledgement, self.start)]
        runs = self.in_flight.cut([offset for first, last, _ in chunks for offset in (first, last + 1)])
        firsts = [run.first for run in runs]
        try:
            for first, last, kind in chunks:
                at = bisect_left(firsts, first)
                while at < len(runs) and runs[at].first <= last:
                    self._say(runs[at], kind, change, member_id=member_id, limits=limits, now_ms=now_ms)
                    at += 1
            if problem is not None:
                raise problem
        except KafkaError:
            self.roll_back(change, limits=limits, now_ms=now_ms)
            raise
        return change

    def _say(
        self, run: Run, kind: AcknowledgeType, change: Change, *, member_id: str, limits: ShareLimits, now_ms: int
    ) -> None:
        if not run.locked or run.member_id != member_id:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE, f"offsets {run.first} to {run.last} are not acquired by this member"
            )
        if kind is not AcknowledgeType.RENEW:
            rejected = kind is AcknowledgeType.REJECT and limits.dead_letters
            self._begin(run, _rejected(run) if rejected else _STATES[kind], change, limits)
        elif limits.renew:
            run.deadline_ms = now_ms + limits.lock_ms
        else:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE, "share.renew.acknowledge.enable=false: locks cannot be renewed"
            )

    def _count_valid(self, acknowledgements: Sequence[Acknowledgement]) -> tuple[int, KafkaError | None]:
        """Count valid acknowledgements; return also the next one's error."""
        before, end = -1, -1
        for index, acknowledgement in enumerate(acknowledgements):
            try:
                if acknowledgement.first <= before:
                    text = f"offset {acknowledgement.first} is acknowledged twice"
                    raise KafkaError(ErrorCode.INVALID_RECORD_STATE, text)
                if acknowledgement.last > end:  # offsets up to `end` are in the batch found before
                    end = self._find(acknowledgement)
                before = acknowledgement.last
            except KafkaError as problem:
                return index, problem
        return len(acknowledgements), None

    def _find(self, acknowledgement: Acknowledgement) -> int:
        """Find the last offset of the batch where the range ends.

        INVALID_RECORD_STATE before all records in flight, INVALID_REQUEST behind them.
        """
        batches = self.in_flight.between(acknowledgement.first, acknowledgement.last)
        if not self.in_flight.has_before(acknowledgement.first) and not (
            batches and acknowledgement.first < self.start
        ):
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE,
                f"offsets {acknowledgement.first} to {acknowledgement.last} are not acquired",
            )
        if not batches or acknowledgement.last > batches[-1].last:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"offsets {acknowledgement.first} to {acknowledgement.last} are behind what is acquired",
            )
        return batches[-1].last

    def release(self, member_id: str, limits: ShareLimits) -> Change:
        """Release a member's records; the change is written as of `acknowledge`."""
        change = Change()
        for run in self.in_flight.runs:
            if run.locked and run.member_id == member_id:
                self._begin(run, RecordState.AVAILABLE, change, limits)
        return change

    def take_back(self, member_id: str, acquired: Iterable[Acquired]) -> bool:
        """Undo an acquisition with an unsent response; True if records were freed.

        It is no delivery, and nothing is written.
        """
        taken = False
        for part in acquired:
            for run in self.in_flight.within(part.first, part.last):
                if run.locked and (run.member_id, run.delivery_count) == (member_id, part.delivery_count):
                    run.delivery_count -= 1
                    run.settle(RecordState.AVAILABLE)
                    taken = True
        self._changed()
        return taken

    def _begin(self, run: Run, state: RecordState, change: Change, limits: ShareLimits) -> None:
        """Change a state; member and deadline stay until it is written."""
        if state is RecordState.AVAILABLE:
            state = _given_back(run, limits)
        run.state, run.change = state, change
        change.note(run)

    # Results of writes

    def commit(self, *changes: Change) -> None:
        written = frozenset(changes)
        for run in self.in_flight.runs:
            if run.change in written:
                run.settle(run.state)
        self._changed()

    def roll_back(self, *changes: Change, limits: ShareLimits, now_ms: int) -> None:
        """Undo unwritten changes; unexpired locks stay."""
        refused = frozenset(changes)
        for run in self.in_flight.runs:
            if run.change not in refused:
                continue
            if run.deadline_ms > now_ms:
                run.state, run.change, run.cause = RecordState.ACQUIRED, None, None
            else:
                run.settle(_given_back(run, limits))
        self._changed()

    # Expiry

    def expire(self, limits: ShareLimits, now_ms: int) -> Change:
        """Release records with expired locks.

        The change holds even if it cannot be written. Its dead letters wait for `commit`.
        """
        change = Change(holds=True)
        for run in self.in_flight.runs:
            if run.locked and run.deadline_ms <= now_ms:
                run.settle(_given_back(run, limits))
                note(change.batches, run)
                if run.dead:
                    run.change = change
        if change.batches:
            self._changed()
        return change

    # Dead letters

    def letters(self, limits: ShareLimits, at_most: int) -> list[Letter]:
        letters: list[Letter] = []
        for run in self.in_flight.runs:
            if run.dead and at_most > 0:
                last = min(run.last, run.first + at_most - 1)
                letters.append(Letter(run.first, last, run.delivery_count, run.cause or _cause(run, limits)))
                at_most -= last - run.first + 1
        return letters

    def buried(self, letters: Iterable[Letter]) -> list[StateBatch]:
        """Archive records whose dead letters are on disk; return batches to write.

        The change holds even if it cannot be written.
        """
        batches: list[StateBatch] = []
        ranges = [(letter.first, letter.last) for letter in letters]
        runs = self.in_flight.cut([offset for first, last in ranges for offset in (first, last + 1)])
        firsts = [run.first for run in runs]
        for first, last in ranges:
            at = bisect_left(firsts, first)
            while at < len(runs) and runs[at].first <= last:
                if runs[at].dead:
                    runs[at].settle(RecordState.ARCHIVED)
                    note(batches, runs[at])
                at += 1
        self._changed()
        return batches

    def log_start_moved(self, offset: int) -> bool:
        if offset <= self.start:
            return False
        self.in_flight.drop_before(offset)
        self.start = offset
        self.end = max(self.end, offset)
        self._changed()
        return True

    def absent(self, first: int, last: int) -> None:
        """Archive available records missing in the log, bounds included."""
        if first > last:
            return
        for run in self.in_flight.within(first, last):
            if run.state is RecordState.AVAILABLE:
                run.settle(RecordState.ARCHIVED)
        self._changed()

    def offer(self) -> None:
        self._maybe_available = True

    def _changed(self) -> None:
        self._maybe_available = True
        self.in_flight.join()
        self.advance()

    def advance(self) -> None:
        if self.in_flight.drop_finished():
            self.start = self.in_flight.first if self.in_flight else self.end


def _given_back(run: Run, limits: ShareLimits) -> RecordState:
    if run.delivery_count < limits.delivery_count:
        return RecordState.AVAILABLE
    if not limits.dead_letters:
        return RecordState.ARCHIVED
    run.cause = Cause.DELIVERED_TOO_OFTEN
    return RecordState.ARCHIVING


def _rejected(run: Run) -> RecordState:
    run.cause = Cause.REJECTED
    return RecordState.ARCHIVING


def _cause(run: Run, limits: ShareLimits) -> Cause:
    """Guess an earlier leader's cause by Kafka's rule."""
    return Cause.DELIVERED_TOO_OFTEN if run.delivery_count >= limits.delivery_count else Cause.REJECTED


def _chunks(acknowledgement: Acknowledgement, start: int) -> Iterator[tuple[int, int, AcknowledgeType]]:
    if len(acknowledgement.types) == 1:
        yield max(acknowledgement.first, start), acknowledgement.last, AcknowledgeType(acknowledgement.types[0])
        return
    first = acknowledgement.first
    for kind, same in groupby(acknowledgement.types):
        last = first + sum(1 for _ in same) - 1
        if last >= start:
            yield max(first, start), last, AcknowledgeType(kind)
        first = last + 1


def _restored(kept: ShareState) -> Iterator[InFlightBatch]:
    expected = kept.start_offset
    for batch in kept.batches:
        if not expected <= batch.first_offset <= batch.last_offset:
            text = f"{batch.first_offset} to {batch.last_offset}, where {expected} is the next offset"
            raise ValueError(f"the state that is kept of a share partition has a batch {text}")
        if batch.first_offset > expected:
            yield InFlightBatch([Run(expected, batch.first_offset - 1)], fresh=True)
        state = RecordState(batch.delivery_state)
        yield InFlightBatch([Run(batch.first_offset, batch.last_offset, state, batch.delivery_count)])
        expected = batch.last_offset + 1
