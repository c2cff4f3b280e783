"""Records in flight of a share partition, with state and owner (KIP-932).

Here: runs of records in the same state, the batches in which they were first fetched.
Not here: the transitions (`state`). Memory grows with the runs, where Kafka has a state per record once two of a batch
differ.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple

from busway_bus.kernel.share_state import StateBatch


class RecordState(IntEnum):
    """The state of a record; the numbers are Kafka's.

    AVAILABLE: may be acquired. Exits: acquired; archived where the log has lost it.
    ACQUIRED: locked by a member until its deadline. Exits: acknowledged, archived (rejected, a gap, aborted, delivery limit reached),
        archiving (rejected or delivery limit reached, in a group with dead letters), available (released, or lock expired).
    ACKNOWLEDGED: processed; terminal.
    ARCHIVING: given up, dead letter not confirmed yet (KIP-1191). Exits: archived once the letter is on disk.
    ARCHIVED: given up; terminal.
    """

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class Cause(StrEnum):
    REJECTED = "Offset rejected by client."
    DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."


class Letter(NamedTuple):
    """Records, bounds included, with due dead letters of one reason."""

    first: int
    last: int
    delivery_count: int
    cause: Cause


class Acquired(NamedTuple):
    first: int
    last: int
    delivery_count: int


@dataclass(slots=True, eq=False)
class Change:
    """States that are being written.

    Their records are neither acquirable nor finished meanwhile. `holds`: the states hold even if the write fails.
    """

    batches: list[StateBatch] = field(default_factory=list)
    holds: bool = False

    def note(self, run: "Run") -> None:
        note(self.batches, run)


def note(batches: list[StateBatch], run: "Run") -> None:
    first = run.first
    if batches:
        before = batches[-1]
        same = (before.delivery_state, before.delivery_count) == (run.state, run.delivery_count)
        if same and before.last_offset + 1 == first:
            first = before.first_offset
            batches.pop()
    batches.append(StateBatch(first, run.last, int(run.state), run.delivery_count))


@dataclass(slots=True, eq=False)
class Run:
    """Records of consecutive offsets, bounds included, in the same state.

    Attributes:
        member_id, deadline_ms: the owner and its lock's end; kept during a write.
        cause: why the records were given up, if known.
    """

    first: int
    last: int
    state: RecordState = RecordState.AVAILABLE
    delivery_count: int = 0
    member_id: str = ""
    deadline_ms: int = 0
    change: Change | None = None
    cause: Cause | None = None

    @property
    def available(self) -> bool:
        return self.state is RecordState.AVAILABLE and self.change is None

    @property
    def locked(self) -> bool:
        return self.state is RecordState.ACQUIRED and self.change is None

    @property
    def terminal(self) -> bool:
        """Whether the state is terminal, written or not."""
        return self.state in {RecordState.ACKNOWLEDGED, RecordState.ARCHIVED}

    @property
    def dead(self) -> bool:
        """Whether it is archiving without a pending change."""
        return self.state is RecordState.ARCHIVING and self.change is None

    @property
    def active(self) -> bool:
        return self.change is not None or not (self.terminal or self.state is RecordState.ARCHIVING)

    def acquire(self, member_id: str, deadline_ms: int) -> None:
        self.state = RecordState.ACQUIRED
        self.delivery_count += 1
        self.member_id, self.deadline_ms = member_id, deadline_ms

    def settle(self, state: RecordState) -> None:
        self.state, self.member_id, self.deadline_ms, self.change = state, "", 0, None
        if state is not RecordState.ARCHIVING:
            self.cause = None

    def like(self, other: "Run") -> bool:
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.deadline_ms == other.deadline_ms
            and self.change is other.change
            and self.cause is other.cause
        )

    def part(self, first: int, last: int) -> "Run":
        return Run(
            first, last, self.state, self.delivery_count, self.member_id, self.deadline_ms, self.change, self.cause
        )


@dataclass(slots=True, eq=False)
class InFlightBatch:
    """Records first fetched together, redelivered together where possible.

    Attributes:
        fresh: not fetched through this leader.
        size: number of offsets at creation.
    """

    runs: list[Run]
    fresh: bool = False
    size: int = 0

    def __post_init__(self) -> None:
        self.size = self.last - self.first + 1

    @property
    def first(self) -> int:
        return self.runs[0].first

    @property
    def last(self) -> int:
        return self.runs[-1].last

    def within(self, first: int, last: int) -> list[Run]:
        inside: list[Run] = []
        pieces: list[Run] = []
        for run in self.runs:
            low, high = max(run.first, first), min(run.last, last)
            if low > high:
                pieces.append(run)
                continue
            if run.first < low:
                pieces.append(run.part(run.first, low - 1))
            middle = run if (low, high) == (run.first, run.last) else run.part(low, high)
            pieces.append(middle)
            inside.append(middle)
            if high < run.last:
                pieces.append(run.part(high + 1, run.last))
        self.runs = pieces
        return inside

    def cut(self, offsets: Sequence[int]) -> None:
        pieces: list[Run] = []
        at = 0
        for run in self.runs:
            first = run.first
            while at < len(offsets) and offsets[at] <= run.last:
                if offsets[at] > first:
                    pieces.append(run.part(first, offsets[at] - 1))
                    first = offsets[at]
                at += 1
            pieces.append(run if first == run.first else run.part(first, run.last))
        self.runs = pieces

    def join(self) -> None:
        joined = self.runs[:1]
        for run in self.runs[1:]:
            if joined[-1].last + 1 == run.first and joined[-1].like(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self.runs = joined


class InFlight:
    """The batches of one share partition in offset order, without overlaps."""

    __slots__ = ("_batches",)

    def __init__(self, batches: Iterable[InFlightBatch] = ()) -> None:
        self._batches = list(batches)

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return iter(self._batches)

    @property
    def first(self) -> int:
        return self._batches[0].first

    @property
    def runs(self) -> Iterator[Run]:
        return (run for batch in self._batches for run in batch.runs)

    def has_before(self, offset: int) -> bool:
        return bool(self._batches) and self._batches[0].first <= offset

    def between(self, first: int, last: int) -> list[InFlightBatch]:
        start = max(bisect_right(self._batches, first, key=_first) - 1, 0)
        stop = bisect_right(self._batches, last, key=_first)
        return [batch for batch in self._batches[start:stop] if batch.last >= first]

    def within(self, first: int, last: int) -> list[Run]:
        """As `InFlightBatch.within`."""
        return [run for batch in self.between(first, last) for run in batch.within(first, last)]

    def cut(self, offsets: Sequence[int]) -> list[Run]:
        if not offsets:
            return []
        concerned = self.between(offsets[0], offsets[-1])
        for batch in concerned:
            inside = offsets[bisect_right(offsets, batch.first) : bisect_right(offsets, batch.last)]
            if inside:
                batch.cut(inside)
        return [run for batch in concerned for run in batch.runs]

    def put(self, batches: list[InFlightBatch]) -> None:
        if batches:
            at = bisect_right(self._batches, batches[0].first, key=_first)
            self._batches[at:at] = batches

    def replace(self, old: InFlightBatch, new: list[InFlightBatch]) -> None:
        at = bisect_right(self._batches, old.first, key=_first) - 1
        assert self._batches[at] is old, "a batch that is not there cannot be replaced"
        self._batches[at : at + 1] = new

    def drop_before(self, offset: int) -> None:
        kept = bisect_right(self._batches, offset, key=_first) - 1
        if kept < 0:
            return
        edge = self._batches[kept]
        if edge.last < offset:
            kept += 1
        elif edge.first < offset:
            edge.within(offset, edge.last)
            edge.runs = [run for run in edge.runs if run.first >= offset]
        del self._batches[:kept]

    def drop_finished(self) -> bool:
        last = -1
        for run in self.runs:
            if not run.terminal or run.change is not None:
                break
            last = run.last
        if last >= 0:
            self.drop_before(last + 1)
        return last >= 0

    def join(self) -> None:
        for batch in self._batches:
            if len(batch.runs) > 1:
                batch.join()


def _first(batch: InFlightBatch) -> int:
    return batch.first
