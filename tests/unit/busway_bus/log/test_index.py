"""The search in both indexes, against lists."""

from bisect import bisect_right

from hypothesis import given, settings
from hypothesis import strategies as st

from busway_bus.log.index import OFFSET_ENTRY, PAGE_BYTES, TIME_ENTRY, SparseIndex

ASCENDING = st.lists(st.integers(0, 60), unique=True, max_size=20).map(sorted)


class Content(bytearray):
    """An index file, and what was read of it."""

    def __init__(self):
        super().__init__()
        self.reads = []

    def read(self, position, size):
        data = bytes(self[position : position + size])
        self.reads.append(len(data))
        return data


def filled(entry, pairs):
    """An index and its file."""
    index, content = SparseIndex(entry), Content()
    for pair in pairs:
        content += index.pack(*pair)
        index.count += 1
    assert index.size_bytes == len(content)
    return index, content


@settings(max_examples=50)
@given(ASCENDING, st.lists(st.integers(0, 70), min_size=1, max_size=5))
def test_the_last_entry_at_or_below(offsets, keys):
    """Whatever was looked for before; the same after a restart; what is behind can be cut off."""
    index, content = filled(OFFSET_ENTRY, [(offset, 100 + offset) for offset in offsets])
    for key in keys:
        assert index.find(0, key, content.read) == bisect_right(offsets, key) - 1
        assert (
            SparseIndex(OFFSET_ENTRY, len(content)).find(1, key + 100, content.read) == bisect_right(offsets, key) - 1
        )
    kept = index.find(0, keys[0], content.read) + 1
    assert index.truncate(kept) == 8 * kept
    assert index.find(0, 99, content.read) == kept - 1


@settings(max_examples=20)
@given(st.data())
def test_many_pages(data):
    """Of a file of any size no more is read than two pages and a few entries, and of its pages only one is in memory."""
    pairs = [(at * 3, at) for at in range(data.draw(st.integers(1, 5_000)))]
    index, content = filled(TIME_ENTRY, pairs)
    for _ in range(20):
        key = data.draw(st.integers(-1, 15_010))
        content.reads.clear()
        expected = min(key // 3, len(pairs) - 1)
        assert index.find(0, key, content.read) == expected
        assert sum(content.reads) <= 2 * PAGE_BYTES + 12 * TIME_ENTRY.size
        if expected >= 0:
            assert index.entry(expected, content.read) == pairs[expected]


def test_a_reader_that_goes_on_reads_the_next_page_alone():
    """Going forward through a log takes no search."""
    index, content = filled(OFFSET_ENTRY, [(at, at) for at in range(512 * 8)])
    index.find(0, 512, content.read)
    content.reads.clear()
    for key in range(512, 512 * 7, 16):
        assert index.find(0, key, content.read) == key
    assert sum(content.reads) <= 6 * (PAGE_BYTES + 3 * 8)


def test_an_index_that_grows_is_seen_to_its_end():
    """The last page is read again when it has more entries than before."""
    index, content = filled(OFFSET_ENTRY, [(1, 1)])
    for at in range(2, 2_000):
        assert index.find(0, at, content.read) == at - 2
        content += index.pack(at, at)
        index.count += 1
        assert index.entry(index.count - 1, content.read) == (at, at)


def test_a_file_that_has_lost_its_end():
    """What cannot be read is zeros, which name no batch."""
    index = SparseIndex(OFFSET_ENTRY, 80)
    assert index.entry(9, lambda position, size: b"") == (0, 0)
    assert index.count == 10
    assert SparseIndex(OFFSET_ENTRY, 83).count == 10
