"""State batches of a share partition, merged so that every offset is in one of them at most.

What lives here: which state counts where several are told for an offset, and what the start of the partition leaves of them. What does
not: where they are kept (`shard`).

Where states differ the higher delivery count counts, then the higher state: deliveries are only ever counted up, and a state that is final
is a higher number than one that is not. Neighbours that say the same become one. The time does not grow with what is not touched.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter, lt

from busway_bus.kernel.share_state import StateBatch

NO_START = -1
"""In place of a start offset: it is where it was."""


def combine(held: Sequence[StateBatch], told: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """The batches that hold, with those that were told put in.

    Args:
        held: by offset, without overlaps, as this has returned them.
        told: in any order, over each other or not.
        start_offset: what is before it goes; `NO_START` where nothing does.
    """
    held, told = _from(tuple(held), start_offset), _apart(_clipped(told, start_offset))
    if not told:
        return held
    left = bisect_left(held, told[0].first_offset - 1, key=_last)
    right = bisect_right(held, told[-1].last_offset + 1, key=_first)
    return (*held[:left], *_joined(_merged(held[left:right], told)), *held[right:])


def _from(held: tuple[StateBatch, ...], start_offset: int) -> tuple[StateBatch, ...]:
    """What of batches without overlaps is at the start or behind it."""
    held = held[bisect_left(held, start_offset, key=_last) :]
    return (*_clipped(held[:1], start_offset), *held[1:])


def _clipped(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    batches = tuple(batches)
    if start_offset <= min(map(_first, batches), default=start_offset):
        return batches
    return tuple(
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    )


def _apart(batches: tuple[StateBatch, ...]) -> Sequence[StateBatch]:
    """By offset, without overlaps."""
    ends = [batch.last_offset for batch in batches]
    if all(map(lt, ends, map(_first, batches[1:]))):
        return batches  # as every leader tells them
    return _swept(sorted(batches, key=_first))


def _swept(batches: list[StateBatch]) -> list[StateBatch]:
    """Go over the offsets once, with all batches at hand that an offset is in."""
    found: list[StateBatch] = []
    here: list[tuple[int, int, int]] = []
    index, at = 0, 0
    while index < len(batches) or here:
        if not here:
            at = batches[index].first_offset
        while index < len(batches) and batches[index].first_offset <= at:
            batch = batches[index]
            heapq.heappush(here, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            index += 1
        while here and here[0][2] < at:
            heapq.heappop(here)
        if here:
            count, state, last = here[0]
            if index < len(batches):
                last = min(last, batches[index].first_offset - 1)
            found.append(StateBatch(at, last, -state, -count))
            at = last + 1
    return found


def _merged(held: Sequence[StateBatch], told: Sequence[StateBatch]) -> Iterator[StateBatch]:
    """Both together, by offset and without overlaps, as each of them is."""
    ones, others = iter(held), iter(told)
    one, other = next(ones, None), next(others, None)
    while one is not None and other is not None:
        if one[1] < other[0]:
            yield one
            one = next(ones, None)
        elif other[1] < one[0]:
            yield other
            other = next(others, None)
        else:
            counts = one if one[:1:-1] >= other[:1:-1] else other
            if one[:2] == other[:2]:
                yield counts
                one, other = next(ones, None), next(others, None)
                continue
            begin, end = max(one[0], other[0]), min(one[1], other[1])
            if one[0] != other[0]:
                yield min(one, other)._replace(last_offset=begin - 1)
            yield counts._replace(first_offset=begin, last_offset=end)
            one = one._replace(first_offset=end + 1) if one[1] > end else next(ones, None)
            other = other._replace(first_offset=end + 1) if other[1] > end else next(others, None)
    if one is not None:
        yield one
    if other is not None:
        yield other
    yield from ones
    yield from others


def _joined(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """Neighbours that say the same are one."""
    found: list[StateBatch] = []
    expected, said = -1, (0, 0)
    for batch in batches:
        first, last, state, count = batch
        if first == expected and (state, count) == said:
            found[-1] = found[-1]._replace(last_offset=last)
        else:
            found.append(batch)
            said = state, count
        expected = last + 1
    return found


_first = attrgetter("first_offset")
_last = attrgetter("last_offset")
