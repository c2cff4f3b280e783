"""What may be committed, whatever order records are finished in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.app.ack import CompletedOffsets


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.data())
def test_the_longest_finished_beginning_is_committable(gaps: list[int], data: st.DataObject) -> None:
    """In any order of finishing, with gaps between offsets: never past a record that is not finished."""
    offsets = [sum(gaps[: count + 1]) for count in range(len(gaps))]
    tracker = CompletedOffsets()
    for offset in offsets:
        tracker.begin(offset)
    finished: set[int] = set()
    for offset in data.draw(st.permutations(offsets)):
        tracker.finish(offset)
        finished.add(offset)
        beginning = [one for count, one in enumerate(offsets, 1) if set(offsets[:count]) <= finished]
        assert tracker.committable == (beginning[-1] + 1 if beginning else None)
        assert tracker.open == len(offsets) - len(beginning)


def test_offsets_only_grow() -> None:
    """One that is not above the last belongs to another log."""
    tracker = CompletedOffsets()
    tracker.begin(5)
    tracker.finish(5)
    assert (tracker.follows(5), tracker.follows(6)) == (False, True)
    with pytest.raises(AssertionError):
        tracker.begin(5)
    with pytest.raises(AssertionError):
        tracker.finish(6)
