"""What comes out of one partition of a ShareFetch answer, from logs with holes, markers and damage, and from brokers that talk nonsense."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.share.acquired import GAP, REJECT, RELEASE, Acquired, Range
from busway.types import Record, TopicPartition
from busway_protocol.messages.share_groups import AcquiredRecords
from busway_protocol.records.builder import BatchBuilder

JOBS = TopicPartition("jobs", 0)


def batch(first: int, count: int = 1, *, control: bool = False) -> bytes:
    """Records with values that tell their offset."""
    builder = BatchBuilder(control=control)
    for offset in range(first, first + count):
        builder.append(1, bytes((0, 0, 0, 1)) if control else None, b"%d" % offset)
    return builder.build(first)


def ranges(*parts: tuple[int, int, int]) -> list[AcquiredRecords]:
    """As the wire has them: first and last offset, delivery count."""
    return [AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count) for first, last, count in parts]


def drained(acquired: Acquired, limit: int = 1000) -> tuple[list[Record], list[Range], list[str]]:
    """All that comes out of it, so many at a time."""
    records: list[Record] = []
    settled: list[Range] = []
    problems: list[str] = []
    while not acquired.is_empty:
        taken = acquired.take(limit, check_crcs=True)
        assert len(taken.records) <= limit
        records += taken.records
        settled += taken.settled
        problems += [str(taken.problem)] if taken.problem is not None else []
    return records, settled, problems


@given(
    st.lists(st.sampled_from(["record", "hole", "marker"]), max_size=12),
    st.sets(st.integers(0, 11)),
    st.integers(1, 5),
)
def test_each_acquired_offset_is_handed_out_or_told_as_a_gap(
    log: list[str], acquired_offsets: set[int], limit: int
) -> None:
    """Whatever the log holds at it, and never one that others have."""
    acquired_offsets = {offset for offset in acquired_offsets if offset < len(log)}
    data = b"".join(batch(at, control=what == "marker") for at, what in enumerate(log) if what != "hole")
    acquired = Acquired(JOBS, memoryview(data), ranges(*((at, at, at + 1) for at in sorted(acquired_offsets))), 0.0)
    records, settled, problems = drained(acquired, limit)
    there = {at for at, what in enumerate(log) if what == "record"}
    assert [(record.offset, record.delivery_count) for record in records] == [
        (at, at + 1) for at in sorted(acquired_offsets & there)
    ]
    gaps = [offset for first, last, kind in settled for offset in range(first, last + 1) if kind == GAP]
    assert sorted(gaps) == sorted(acquired_offsets - there)
    assert problems == []


def test_a_range_without_records_costs_one_acknowledgement_however_long_it_is() -> None:
    """A broker may say that everything is acquired."""
    acquired = Acquired(JOBS, memoryview(batch(5)), ranges((0, 2**63 - 2, 1)), 0.0)
    records, settled, _ = drained(acquired)
    assert [record.offset for record in records] == [5]
    assert settled == [(0, 4, GAP), (6, 2**63 - 2, GAP)]


def test_offsets_that_are_acquired_twice_are_handed_out_once() -> None:
    """Ranges that overlap, out of order, or backwards."""
    data = b"".join(batch(at) for at in range(4))
    records, settled, _ = drained(
        Acquired(JOBS, memoryview(data), ranges((2, 3, 1), (0, 2, 4), (1, 1, 1), (3, 1, 9)), 0)
    )
    assert [record.offset for record in records] == [0, 1, 2, 3]
    assert settled == []


def test_a_damaged_batch_is_rejected_and_the_others_are_handed_out() -> None:
    """As Java does: no other reader could read it either."""
    data = bytearray(batch(0, 2) + batch(2, 2) + batch(4))
    data[len(batch(0, 2)) + 70] ^= 1
    records, settled, problems = drained(Acquired(JOBS, memoryview(data), ranges((1, 2, 1), (4, 4, 1)), 0))
    assert [record.offset for record in records] == [1, 4]
    assert settled == [(2, 2, REJECT)]
    (problem,) = problems
    assert "jobs-0" in problem
    assert "rejected: offsets 2 to 2" in problem


@pytest.mark.parametrize("rest", [b"\0" * 40, batch(2)[:-3]])
def test_what_cannot_be_cut_into_batches_is_released(rest: bytes) -> None:
    """It is unknown which records those are, and a gap would take them from the group for ever."""
    records, settled, problems = drained(Acquired(JOBS, memoryview(batch(0, 2) + rest), ranges((0, 5, 1)), 0))
    assert [record.offset for record in records] == [0, 1]
    assert settled == [(2, 5, RELEASE)]
    assert "released: offsets 2 to 5" in problems[0]
