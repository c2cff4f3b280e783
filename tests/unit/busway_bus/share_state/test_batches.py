"""State batches of a share partition, merged: every offset says what a table of all offsets would say."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from busway_bus.kernel.share_state import StateBatch
from busway_bus.share_state.batches import NO_START, combine

END = 24


def batch(first: int, last: int, state: int = 0, count: int = 1) -> StateBatch:
    """One batch, in few words."""
    return StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)


@st.composite
def batches(draw: st.DrawFn) -> list[StateBatch]:
    """Some, over each other or not."""
    made_batches = []
    for _ in range(draw(st.integers(0, 6))):
        first = draw(st.integers(0, END))
        last = draw(st.integers(first, END))
        made_batches.append(batch(first, last, draw(st.sampled_from([0, 2, 4])), draw(st.integers(1, 3))))
    return made_batches


def table(merged: list[StateBatch], start: int) -> dict[int, tuple[int, int]]:
    """What counts for each offset: the highest delivery count, then the highest state."""
    states: dict[int, tuple[int, int]] = {}
    for state_batch in merged:
        for offset in range(max(state_batch.first_offset, start), state_batch.last_offset + 1):
            states[offset] = max(states.get(offset, (-1, -1)), (state_batch.delivery_count, state_batch.delivery_state))
    return states


@given(batches(), batches(), st.integers(-1, END))
@example([batch(0, 4, 2), batch(5, 9, 0)], [batch(5, 12, 2, 1)], NO_START)
@example([batch(0, 20, 4, 3)], [batch(3, 4, 0, 1), batch(10, 22, 2, 3)], 4)
def test_every_offset_is_what_the_table_says(first: list[StateBatch], then: list[StateBatch], start: int) -> None:
    """In order, without overlaps, and neighbours that say the same are one."""
    held = combine((), first, NO_START)
    merged = combine(held, then, start)
    expected = table([*first, *then], start)
    assert {
        offset: (state_batch.delivery_count, state_batch.delivery_state)
        for state_batch in merged
        for offset in range(state_batch.first_offset, state_batch.last_offset + 1)
    } == expected
    assert sum(state_batch.last_offset - state_batch.first_offset + 1 for state_batch in merged) == len(expected)
    for before, after in pairwise(merged):
        assert before.last_offset < after.first_offset
        alike = (before.delivery_state, before.delivery_count) == (after.delivery_state, after.delivery_count)
        assert not alike or before.last_offset + 1 < after.first_offset


def test_what_is_not_touched_costs_nothing() -> None:
    """Of twenty thousand batches those are kept that the new ones are nowhere near, as they are; a staircase is no worse than its size."""
    held = tuple(batch(10 * number, 10 * number + 3) for number in range(20_000))
    merged = combine(held, [batch(100_005, 100_006, 2)], NO_START)
    assert merged[:10_001] == held[:10_001]
    assert merged[10_001] == batch(100_005, 100_006, 2)
    assert all(state_batch is other for state_batch, other in zip(merged[10_002:], held[10_001:], strict=True))
    stairs = [batch(number, 50_000 + number, 0, 1 + (20_000 - number)) for number in range(20_000)]
    assert len(combine((), stairs, NO_START)) == 20_000
