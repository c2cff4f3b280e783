"""The arithmetic of both indexes, against lists."""

from hypothesis import given, settings
from hypothesis import strategies as st

from busway_bus.log.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex

ASCENDING = st.lists(st.integers(0, 60), unique=True, max_size=20).map(sorted)


@settings(max_examples=50, deadline=None)
@given(ASCENDING, st.integers(0, 70))
def test_the_position_before_an_offset(offsets, wanted):
    """The last entry at or below it; the beginning where there is none; the same after a restart."""
    index = OffsetIndex()
    content = b"".join(index.append(offset, 100 + offset) for offset in offsets)
    expected = max((100 + offset for offset in offsets if offset <= wanted), default=0)
    assert index.position(wanted) == expected
    again = OffsetIndex.from_bytes(content)
    assert (again.offsets, again.positions) == (index.offsets, index.positions)
    assert index.truncate(wanted) == 8 * sum(offset < wanted for offset in offsets) == 8 * len(index)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=20), st.integers(0, 40))
def test_the_offset_before_a_time(steps, wanted):
    """No record at or after a time lies before the answer; an entry that is no later than the last is not made."""
    index, content, offset, entries = TimeIndex(), b"", 0, []
    for timestamp, step in steps:
        offset += step
        entry = index.append(timestamp, offset)
        assert bool(entry) == (not entries or timestamp > entries[-1][0])
        if entry:
            entries.append((timestamp, offset))
        content += entry
    expected = max((offset for timestamp, offset in entries if timestamp < wanted), default=0)
    assert index.offset(wanted) == expected
    again = TimeIndex.from_bytes(content)
    assert (again.timestamps, again.offsets) == (index.timestamps, index.offsets)
    assert index.truncate(wanted) == 12 * sum(offset < wanted for _, offset in entries) == 12 * len(index)


def test_files_that_contradict_themselves():
    """Entries out of order, repeated or cut off are no index; an empty file is one."""
    for pairs in ([(2, 20), (1, 30)], [(1, 20), (2, 20)], [(1, 20), (1, 30)], [(0, 0), (0, 0)]):
        assert OffsetIndex.from_bytes(b"".join(OFFSET_ENTRY.pack(*pair) for pair in pairs)) is None
    for pairs in ([(2, 20), (1, 30)], [(1, 20), (2, 10)], [(5, 5), (0, 0)]):
        assert TimeIndex.from_bytes(b"".join(TIME_ENTRY.pack(*pair) for pair in pairs)) is None
    assert OffsetIndex.from_bytes(OFFSET_ENTRY.pack(1, 1)[:-1]) is None
    assert TimeIndex.from_bytes(TIME_ENTRY.pack(1, 1) + b"?") is None
    assert len(OffsetIndex.from_bytes(b"")) == len(TimeIndex.from_bytes(b"")) == 0
