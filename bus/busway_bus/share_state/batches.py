"""State batches of a share partition, merged without overlaps.

Here: which state wins at an offset, cutting at the start offset.
Not here: the table of states (`shard`).

The higher delivery count wins, then the higher state: delivery counts only grow, and terminal states have higher
numbers. Adjacent batches with the same state and count are joined. Batches outside the changed range cost nothing.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter, lt

from busway_bus.kernel.share_state import StateBatch

NO_START = -1
"""In place of a start offset: it stays."""


def combine(held: Sequence[StateBatch], changed: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Merge new batches into those held.

    Args:
        held: as returned before.
        changed: in any order; overlaps are allowed.
        start_offset: everything before it is dropped; `NO_START` drops nothing.
    """
    held, changed = _from(tuple(held), start_offset), _apart(_clipped(changed, start_offset))
    if not changed:
        return held
    left = bisect_left(held, changed[0].first_offset - 1, key=_last)
    right = bisect_right(held, changed[-1].last_offset + 1, key=_first)
    return (*held[:left], *_joined(_merged(held[left:right], changed)), *held[right:])


def _from(held: tuple[StateBatch, ...], start_offset: int) -> tuple[StateBatch, ...]:
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
    ends = [batch.last_offset for batch in batches]
    if all(map(lt, ends, map(_first, batches[1:]))):
        return batches  # the usual case: leaders send them in order
    return _swept(sorted(batches, key=_first))


def _swept(batches: list[StateBatch]) -> list[StateBatch]:
    """Resolve overlaps in one pass. A heap has the batches at the current offset."""
    swept: list[StateBatch] = []
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
            swept.append(StateBatch(at, last, -state, -count))
            at = last + 1
    return swept


def _merged(held: Sequence[StateBatch], changed: Sequence[StateBatch]) -> Iterator[StateBatch]:
    held_batches, changed_batches = iter(held), iter(changed)
    old, new = next(held_batches, None), next(changed_batches, None)
    while old is not None and new is not None:
        if old[1] < new[0]:
            yield old
            old = next(held_batches, None)
        elif new[1] < old[0]:
            yield new
            new = next(changed_batches, None)
        else:
            counts = old if old[:1:-1] >= new[:1:-1] else new
            if old[:2] == new[:2]:
                yield counts
                old, new = next(held_batches, None), next(changed_batches, None)
                continue
            begin, end = max(old[0], new[0]), min(old[1], new[1])
            if old[0] != new[0]:
                yield min(old, new)._replace(last_offset=begin - 1)
            yield counts._replace(first_offset=begin, last_offset=end)
            old = old._replace(first_offset=end + 1) if old[1] > end else next(held_batches, None)
            new = new._replace(first_offset=end + 1) if new[1] > end else next(changed_batches, None)
    if old is not None:
        yield old
    if new is not None:
        yield new
    yield from held_batches
    yield from changed_batches


def _joined(batches: Iterable[StateBatch]) -> list[StateBatch]:
    joined: list[StateBatch] = []
    expected, state_and_count = -1, (0, 0)
    for batch in batches:
        first, last, state, count = batch
        if first == expected and (state, count) == state_and_count:
            joined[-1] = joined[-1]._replace(last_offset=last)
        else:
            joined.append(batch)
            state_and_count = state, count
        expected = last + 1
    return joined


_first = attrgetter("first_offset")
_last = attrgetter("last_offset")
