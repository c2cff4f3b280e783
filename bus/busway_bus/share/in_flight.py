"""Records of a share partition that are under way: in which state each is, and who has it (KIP-932).

What lives here: runs of records that are in the same state, the batches in which they were fetched first, and cutting both. What does
not: what leads from one state to another (`state`). Kafka keeps a state for each record of a batch once two of them differ; runs take as
much as they differ, however many records a batch says it has.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple

from busway_bus.kernel.share_state import StateBatch


class RecordState(IntEnum):
    """Where a record is; the numbers are Kafka's.

    AVAILABLE: for the next who fetches. Exits: acquired; archived where the log has lost it.
    ACQUIRED: a member has it, until its lock ends. Exits: acknowledged, archived (rejected, a gap, aborted, delivered as often as may be),
        archiving (rejected, or delivered as often as may be, in a group with dead letters), available (released, or the lock ended).
    ACKNOWLEDGED: done with.
    ARCHIVING: given up, and its dead letter is not certain yet (KIP-1191). Exits: archived once that is on disk.
    ARCHIVED: given up.
    """

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class Cause(StrEnum):
    """Why a record was given up, as its dead letter says it."""

    REJECTED = "Offset rejected by client."
    DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."


class Letter(NamedTuple):
    """Records, bounds included, that were given up for the same reason, and whose dead letters are to be written."""

    first: int
    last: int
    delivery_count: int
    cause: Cause


class Acquired(NamedTuple):
    """Records, bounds included, that a member has got, and for which time they are delivered."""

    first: int
    last: int
    delivery_count: int


@dataclass(slots=True, eq=False)
class Change:
    """States that are being written down. Until that is known the records are neither given to somebody nor done with.

    Attributes:
        batches: what is to be written.
        holds: whether they hold even where they cannot be written.
    """

    batches: list[StateBatch] = field(default_factory=list)
    holds: bool = False

    def note(self, run: "Run") -> None:
        """A run has got another state."""
        note(self.batches, run)


def note(batches: list[StateBatch], run: "Run") -> None:
    """Put the state of a run behind others that are to be written."""
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
    """Records of consecutive offsets, bounds included, that are in the same state.

    Attributes:
        delivery_count: how often they were delivered.
        member_id, deadline_ms: who has them, or had them before the change that is being written, and until when.
        change: what is being written of them, None where nothing is.
        cause: why they were given up, where they were and this leader knows.
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
        """Whether somebody may have them."""
        return self.state is RecordState.AVAILABLE and self.change is None

    @property
    def locked(self) -> bool:
        """Whether somebody has them, and has said nothing yet."""
        return self.state is RecordState.ACQUIRED and self.change is None

    @property
    def terminal(self) -> bool:
        """Whether they are done with, or are being written down as that."""
        return self.state in {RecordState.ACKNOWLEDGED, RecordState.ARCHIVED}

    @property
    def dead(self) -> bool:
        """Whether they were given up, that is kept, and their dead letters may be missing."""
        return self.state is RecordState.ARCHIVING and self.change is None

    @property
    def active(self) -> bool:
        """Whether somebody has them or may get them, or that is just being decided."""
        return self.change is not None or not (self.terminal or self.state is RecordState.ARCHIVING)

    def acquire(self, member_id: str, deadline_ms: int) -> None:
        """Give them to a member."""
        self.state = RecordState.ACQUIRED
        self.delivery_count += 1
        self.member_id, self.deadline_ms = member_id, deadline_ms

    def settle(self, state: RecordState) -> None:
        """They are in another state, and nobody's."""
        self.state, self.member_id, self.deadline_ms, self.change = state, "", 0, None
        if state is not RecordState.ARCHIVING:
            self.cause = None

    def like(self, other: "Run") -> bool:
        """Whether what holds of one holds of the other."""
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.deadline_ms == other.deadline_ms
            and self.change is other.change
            and self.cause is other.cause
        )

    def part(self, first: int, last: int) -> "Run":
        """A part of it, by itself."""
        return Run(
            first, last, self.state, self.delivery_count, self.member_id, self.deadline_ms, self.change, self.cause
        )


@dataclass(slots=True, eq=False)
class InFlightBatch:
    """What was fetched together first, and is fetched together again where that is possible.

    Attributes:
        fresh: nobody here has fetched it: an earlier leader may have.
        size: how many offsets it had when it was made: its beginning may be done with.
    """

    runs: list[Run]
    fresh: bool = False
    size: int = 0

    def __post_init__(self) -> None:
        self.size = self.last - self.first + 1

    @property
    def first(self) -> int:
        """Its first offset."""
        return self.runs[0].first

    @property
    def last(self) -> int:
        """Its last offset."""
        return self.runs[-1].last

    def within(self, first: int, last: int) -> list[Run]:
        """The runs between two offsets, bounds included; what reaches beyond is cut in two."""
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
        """Have a run begin at each of these offsets, which are in order."""
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
        """Make one run of neighbours that do not differ any more."""
        joined = self.runs[:1]
        for run in self.runs[1:]:
            if joined[-1].last + 1 == run.first and joined[-1].like(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self.runs = joined


class InFlight:
    """The batches of one share partition, by their offsets, which do not overlap."""

    __slots__ = ("_batches",)

    def __init__(self, batches: Iterable[InFlightBatch] = ()) -> None:
        self._batches = list(batches)

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return iter(self._batches)

    @property
    def first(self) -> int:
        """The first offset of all."""
        return self._batches[0].first

    @property
    def runs(self) -> Iterator[Run]:
        """All runs, by their offsets."""
        return (run for batch in self._batches for run in batch.runs)

    def has_before(self, offset: int) -> bool:
        """Whether a batch begins at an offset or before it."""
        return bool(self._batches) and self._batches[0].first <= offset

    def between(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches that have offsets between two, bounds included."""
        start = max(bisect_right(self._batches, first, key=_first) - 1, 0)
        stop = bisect_right(self._batches, last, key=_first)
        return [batch for batch in self._batches[start:stop] if batch.last >= first]

    def within(self, first: int, last: int) -> list[Run]:
        """The runs between two offsets, bounds included; what reaches beyond is cut in two."""
        return [run for batch in self.between(first, last) for run in batch.within(first, last)]

    def cut(self, offsets: Sequence[int]) -> list[Run]:
        """Have a run begin at each of these offsets, which are in order; the runs of all batches that may be concerned."""
        if not offsets:
            return []
        concerned = self.between(offsets[0], offsets[-1])
        for batch in concerned:
            inside = offsets[bisect_right(offsets, batch.first) : bisect_right(offsets, batch.last)]
            if inside:
                batch.cut(inside)
        return [run for batch in concerned for run in batch.runs]

    def put(self, batches: list[InFlightBatch]) -> None:
        """Add batches that lie one behind the other, where none is."""
        if batches:
            at = bisect_right(self._batches, batches[0].first, key=_first)
            self._batches[at:at] = batches

    def replace(self, old: InFlightBatch, new: list[InFlightBatch]) -> None:
        """Put others in the place of one."""
        at = bisect_right(self._batches, old.first, key=_first) - 1
        assert self._batches[at] is old, "a batch that is not there cannot be replaced"
        self._batches[at : at + 1] = new

    def drop_before(self, offset: int) -> None:
        """Forget what is before an offset."""
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
        """Forget what is done with at the beginning; whether there was any."""
        last = -1
        for run in self.runs:
            if not run.terminal or run.change is not None:
                break
            last = run.last
        if last >= 0:
            self.drop_before(last + 1)
        return last >= 0

    def join(self) -> None:
        """Make one run of neighbours in the same batch that do not differ any more."""
        for batch in self._batches:
            if len(batch.runs) > 1:
                batch.join()


def _first(batch: InFlightBatch) -> int:
    return batch.first
