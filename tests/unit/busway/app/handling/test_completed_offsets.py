"""What may be committed, whatever order records are finished in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.app.handling.completed_offsets import CompletedOffsets
from busway.app.offset_set import MAX_TEXT, OffsetSet


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
        beginning = [offset for count, offset in enumerate(offsets, 1) if set(offsets[:count]) <= finished]
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


@given(st.lists(st.integers(1, 4), min_size=1, max_size=40), st.data())
def test_the_next_owner_handles_what_is_not_finished_and_nothing_else(gaps: list[int], data: st.DataObject) -> None:
    """Whatever is finished in whatever order, through two owners: offset and metadata tell the third one exactly the rest."""
    offsets = [sum(gaps[: count + 1]) for count in range(len(gaps))]
    left = list(offsets)
    committed, ahead = offsets[0], ""
    for _ in range(2):
        owner = CompletedOffsets(ahead=OffsetSet.parse(committed, ahead))
        fetched = data.draw(st.integers(0, len(offsets)))
        given_out = [offset for offset in offsets[:fetched] if offset >= committed]
        handled = [offset for offset in given_out if owner.begin(offset)]
        assert handled == [offset for offset in left if offset in given_out]
        for offset in data.draw(st.lists(st.sampled_from(handled), unique=True)) if handled else []:
            owner.finish(offset)
            left.remove(offset)
        if (position := owner.all_finished) is not None:
            committed, ahead = position.below, position.text
    last = CompletedOffsets(ahead=OffsetSet.parse(committed, ahead))
    assert [offset for offset in offsets if offset >= committed and last.begin(offset)] == left


def test_metadata_keeps_what_fits() -> None:
    """Every other record is finished: the first gaps are remembered, the rest comes again, the brokers' bound is kept."""
    tracker = CompletedOffsets()
    for offset in range(5000):
        tracker.begin(offset)
        if offset % 2:
            tracker.finish(offset)
    position = tracker.all_finished
    assert position is not None
    assert MAX_TEXT - 5 < len(position.short_text) <= MAX_TEXT
    again = CompletedOffsets(ahead=OffsetSet.parse(position.below, position.short_text))
    handled = [offset for offset in range(5000) if again.begin(offset)]
    assert set(handled) >= set(range(0, 5000, 2))
    assert 2500 < len(handled) < 5000 - 900


def test_a_partition_that_goes_on_below_is_another_log() -> None:
    """Deleted and created again, or reset by its policy: what the metadata says is about other records."""
    tracker = CompletedOffsets(ahead=OffsetSet(10, [(12, 14)]))
    assert all(tracker.begin(offset) for offset in range(5, 20))
