"""The index of aborted transactions against a look at every entry."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway_bus.log.aborted import ENTRY, AbortedTransaction, Overlaps, entries, first_ending_at
from busway_protocol.records.batch import CorruptBatch


def reader(content: bytes):
    """Reads an index file that holds this."""
    return lambda position, size: content[position : position + size]


@st.composite
def indexes(draw) -> list[AbortedTransaction]:
    """Entries as a log makes them: each with its marker behind those before it, and the oldest open transaction of that moment."""
    spans, offset = [], 0
    for _ in range(draw(st.integers(0, 30))):
        offset += draw(st.integers(1, 4))
        begins = max(0, offset - draw(st.integers(1, 40)))
        if begins not in {at for span in spans for at in span}:  # a record and a marker are at different offsets
            spans.append((begins, offset))
    return [
        AbortedTransaction(
            at, first, last, min((begin for begin, end in spans[at + 1 :] if begin < last), default=last + 1)
        )
        for at, (first, last) in enumerate(spans)
    ]


@given(indexes(), st.integers(0, 120), st.integers(1, 60), st.integers(1, 40), st.integers(0, 30))
def test_who_reads_is_told_of_every_transaction_that_overlaps(index, offset, length, limit, split):
    """Whatever the range and however many segments; with few at a time the range is shorter, and still begins where it did."""
    overlaps = Overlaps(offset, offset + length, limit)
    for part in (index[:split], index[split:]):
        if part and not overlaps.complete:
            overlaps.collect(reader(b"".join(entry.packed() for entry in part)), len(part))
    assert offset < overlaps.upper <= offset + length
    assert [first for _, first in overlaps.transactions] == sorted(first for _, first in overlaps.transactions)
    assert {*overlaps.transactions} == {
        (entry.producer_id, entry.first_offset)
        for entry in index
        if entry.last_offset >= offset and entry.first_offset < overlaps.upper
    }
    if len(overlaps.transactions) > limit:
        assert all(first <= offset for _, first in overlaps.transactions)


@given(indexes(), st.integers(0, 130))
def test_the_first_marker_at_or_behind_an_offset(index, offset):
    """Found by halves."""
    content = b"".join(entry.packed() for entry in index)
    expected = next((at for at, entry in enumerate(index) if entry.last_offset >= offset), len(index))
    assert first_ending_at(reader(content), len(index), offset) == expected


@pytest.mark.parametrize(
    "content",
    [
        ENTRY.pack(1, 7, 0, 5, 6),
        ENTRY.pack(0, 7, 5, 5, 6),
        ENTRY.pack(0, 7, -1, 5, 6),
        ENTRY.pack(0, 7, 0, 5, 6)[:-1],
    ],
    ids=["version", "empty", "negative", "cut"],
)
def test_what_is_no_entry_is_told(content):
    """It is never taken for a transaction, or for none."""
    with pytest.raises(CorruptBatch):
        entries(reader(content), 0, 1)
