"""Acquiring records of a share partition for a member (KIP-932, KIP-1206).

Here: which available records of read batches a member gets.
Not here: reading the batches, later transitions (`state`).

Without `record_limit` whole batches are acquired: the last may exceed `max_records`. Records with many deliveries are
redelivered in ever smaller parts: a record that crashes its consumers does not get its neighbours archived.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from busway_bus.share.in_flight import Acquired, InFlightBatch, RecordState, Run
from busway_bus.share.limits import ShareLimits
from busway_bus.share.state import SharePartitionState

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireOptions:
    """A member's request.

    Attributes:
        batch_size: approximate records of a range of new records.
        record_limit: `max_records` is strict.
    """

    member_id: str
    max_records: int
    batch_size: int
    record_limit: bool = False


def wanted_up_to(state: SharePartitionState, offset: int, max_records: int) -> int:
    """Return the last offset worth reading from `offset` on."""
    available = 0
    for batch in state.in_flight.between(offset, state.end):
        available += sum(
            run.last - max(run.first, offset) + 1 for run in batch.runs if run.available and run.last >= offset
        )
        if available >= max_records:
            return batch.last
    return max(state.end, offset) + max_records - available - 1


def acquire(
    state: SharePartitionState,
    options: AcquireOptions,
    fetched: Sequence[Span],
    *,
    offset: int,
    aborted: Sequence[Span] = (),
    limits: ShareLimits,
    now_ms: int,
) -> list[Acquired]:
    """Acquire available records for a member.

    Args:
        fetched: batches in offset order.
        offset: the start of the read: `next_fetch_offset`.
        aborted: batches of aborted transactions; no member gets them.
    """
    if not fetched or fetched[-1][1] < state.start:
        return []
    last, max_records = _room(state, options, offset, fetched[-1][1], limits)
    if max_records <= 0:
        return []
    state.absent(offset, fetched[0][0] - 1)
    giving = _Acquisition(
        state, options, fetched, last=last, max_records=max_records, limits=limits, deadline_ms=now_ms + limits.lock_ms
    )
    giving.again()
    giving.new()
    acquired = _without(state, giving.acquired, aborted) if aborted else giving.acquired
    state.offer()
    state.in_flight.join()
    state.advance()
    return acquired


def _room(
    state: SharePartitionState, options: AcquireOptions, offset: int, last: int, limits: ShareLimits
) -> tuple[int, int]:
    room = min(options.max_records, state.room(limits))
    if room > 0 or offset >= state.end:
        return last, room
    return min(last, state.end - 1), min(options.max_records, state.end - offset)


class _Acquisition:
    def __init__(
        self,
        state: SharePartitionState,
        options: AcquireOptions,
        fetched: Sequence[Span],
        *,
        last: int,
        max_records: int,
        limits: ShareLimits,
        deadline_ms: int,
    ) -> None:
        self._state = state
        self._options = options
        self._fetched = fetched
        self._first = max(fetched[0][0], state.start)
        self._last = last
        self._left = max_records
        self._limits = limits
        self._deadline_ms = deadline_ms
        self._next = self._first
        self.acquired: list[Acquired] = []

    # Fetched before

    def again(self) -> None:
        for batch in self._state.in_flight.between(self._first, self._last):
            if self._left <= 0:
                return
            self._next = batch.last + 1
            if batch.fresh:
                self._fresh(batch)
                continue
            throttled = self._throttled(batch)
            if throttled and self.acquired:
                self._left = 0
                return
            given = self._part(batch, throttled=throttled) if self._partly(batch) or throttled else self._whole(batch)
            self._left = 0 if throttled and given else self._left - given

    def _partly(self, batch: InFlightBatch) -> bool:
        return (
            len(batch.runs) > 1
            or batch.first < self._first
            or batch.last > self._last
            or (self._options.record_limit and batch.size > self._left)
        )

    def _throttled(self, batch: InFlightBatch) -> bool:
        return any(
            run.available
            and run.delivery_count >= self._limits.throttled_from
            and run.last >= self._first
            and run.first <= self._last
            for run in batch.runs
        )

    def _whole(self, batch: InFlightBatch) -> int:
        run = batch.runs[0]
        if not run.available:
            return 0
        run.acquire(self._options.member_id, self._deadline_ms)
        self.acquired.append(Acquired(run.first, run.last, run.delivery_count))
        return run.last - run.first + 1

    def _part(self, batch: InFlightBatch, *, throttled: bool) -> int:
        limit = self._limits.delivery_count
        given, part, room = 0, len(self.acquired), self._left if self._options.record_limit else batch.size
        for run in tuple(batch.runs):
            low, high = max(run.first, self._first), min(run.last, self._last)
            if low > high or not run.available:
                continue
            if throttled and run.delivery_count >= self._limits.throttled_from:
                halvings = run.delivery_count - self._limits.throttled_from + 1
                room = min(room, max(1, batch.size >> halvings))
            alone = limit > 2 and run.delivery_count == limit - 1
            if given >= room or (alone and given):
                break
            high = min(high, low + (1 if alone else room - given) - 1)
            taken = run if (low, high) == (run.first, run.last) else batch.within(low, high)[0]
            taken.acquire(self._options.member_id, self._deadline_ms)
            self._tell(taken, part)
            given += high - low + 1
            if alone:
                break
        return given

    def _tell(self, run: Run, part: int) -> None:
        if len(self.acquired) > part:
            before = self.acquired[-1]
            if before.last + 1 == run.first and before.delivery_count == run.delivery_count:
                self.acquired[-1] = before._replace(last=run.last)
                return
        self.acquired.append(Acquired(run.first, run.last, run.delivery_count))

    # Not fetched yet

    def _fresh(self, gap: InFlightBatch) -> None:
        low = max(gap.first, self._first)
        given = self._batches(low, min(gap.last, self._last))
        if not given:
            return
        around = [(gap.first, low - 1), (given[-1].last + 1, gap.last)]
        before, behind = [
            [InFlightBatch([Run(first, last)], fresh=True)] if first <= last else [] for first, last in around
        ]
        self._state.in_flight.replace(gap, [*before, *given, *behind])

    def new(self) -> None:
        state = self._state
        given = self._batches(max(self._next, state.end), self._last)
        if not given:
            return
        state.in_flight.put(given)
        if state.in_flight.first == given[0].first:
            state.start = given[0].first
        state.end = max(state.end, given[-1].last + 1)

    def _batches(self, first: int, last: int) -> list[InFlightBatch]:
        if first > last or self._left <= 0:
            return []
        if last - first + 1 > self._left:
            last = min(last, self._end_of_batch(first + self._left - 1))
        count = min(last - first + 1, self._left) if self._options.record_limit else last - first + 1
        self._left -= count
        if self._options.record_limit:
            self.acquired.append(Acquired(first, first + count - 1, 1))
            runs = [self._taken(first, first + count - 1)]
            if first + count <= last:
                runs.append(Run(first + count, last))
            return [InFlightBatch(runs)]
        spans = self._parts(first, last)
        self.acquired += [Acquired(*span, 1) for span in spans]
        return [InFlightBatch([self._taken(*span)]) for span in spans]

    def _taken(self, first: int, last: int) -> Run:
        run = Run(first, last)
        run.acquire(self._options.member_id, self._deadline_ms)
        return run

    def _end_of_batch(self, offset: int) -> int:
        at = bisect_right(self._fetched, offset, key=itemgetter(0)) - 1
        return max(self._fetched[at][1], offset) if at >= 0 else offset

    def _parts(self, first: int, last: int) -> list[Span]:
        """Group whole batches of the log into ranges of at least `batch_size`."""
        spans: list[Span] = []
        size = max(self._options.batch_size, 1)
        if last - first + 1 > size:
            for at in range(bisect_right(self._fetched, first, key=itemgetter(0)), len(self._fetched)):
                base = self._fetched[at][0]
                if base > last:
                    break
                if base - first >= size:
                    spans.append((first, base - 1))
                    first = base
        return [*spans, (first, last)]


def _without(state: SharePartitionState, acquired: list[Acquired], aborted: Sequence[Span]) -> list[Acquired]:
    """Archive acquired records of aborted transactions; return the rest."""
    left: list[Acquired] = []
    taken: list[Span] = []
    at = 0
    for part in acquired:
        first = part.first
        while at < len(aborted) and aborted[at][0] <= part.last:
            low, high = max(aborted[at][0], first), min(aborted[at][1], part.last)
            if low <= high:
                if first < low:
                    left.append(Acquired(first, low - 1, part.delivery_count))
                taken.append((low, high))
                first = high + 1
            if aborted[at][1] > part.last:
                break  # it may reach into the next part
            at += 1
        if first <= part.last:
            left.append(Acquired(first, part.last, part.delivery_count))
    bounds = [offset for low, high in taken for offset in (low, high + 1)]
    for run in state.in_flight.cut(bounds):
        at = bisect_right(taken, run.first, key=itemgetter(0)) - 1
        if at >= 0 and run.last <= taken[at][1]:
            run.settle(RecordState.ARCHIVED)
    return left
