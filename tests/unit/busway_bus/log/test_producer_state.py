"""Sequence numbers of idempotent producers (KIP-98), as a table."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway_bus.log.producer_state import BATCHES_KEPT, SEQUENCES, ProducerState
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import BatchHeader, read_header
from busway_protocol.records.builder import BatchBuilder

NOW = 1_700_000_000_000
LAST = 2_147_483_647
WRITE, REPEAT = "write", "repeat"
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
OLD = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def header(sequence: int, count: int = 1, *, epoch: int = 0, offset: int = 0, timestamp: int = NOW) -> BatchHeader:
    """The header of a batch of producer 7."""
    builder = BatchBuilder(producer_id=7, producer_epoch=epoch, base_sequence=sequence)
    for _ in range(count):
        builder.append(timestamp, b"k", b"v")
    return read_header(builder.build(offset))


def judge(state: ProducerState, found: BatchHeader) -> object:
    """What happens to a batch: written, known as a repetition, or its error code."""
    try:
        return WRITE if state.check(found) is None else REPEAT
    except KafkaError as problem:
        return problem.code


@pytest.mark.parametrize(
    ("written", "incoming", "outcome"),
    [
        ([], header(0), WRITE),
        ([], header(17), WRITE),
        ([header(0)], header(1), WRITE),
        ([header(0)], header(0), REPEAT),
        ([header(0)], header(2), GAP),
        ([header(0, 3)], header(3), WRITE),
        ([header(0, 3)], header(0, 2), OLD),
        ([header(0, 3)], header(1, 2), OLD),
        ([header(0, 3)], header(2, 3), OLD),
        ([header(number) for number in range(7)], header(2), REPEAT),
        ([header(number) for number in range(7)], header(1), OLD),
        ([header(5, epoch=1)], header(6, epoch=0), FENCED),
        ([header(5, epoch=1)], header(5, epoch=0), FENCED),
        ([header(5, epoch=1)], header(0, epoch=2), WRITE),
        ([header(5, epoch=1)], header(6, epoch=2), GAP),
        ([header(5, epoch=1), header(0, epoch=2)], header(5, epoch=1), FENCED),
        ([header(5, epoch=1), header(0, epoch=2)], header(1, epoch=2), WRITE),
        ([header(LAST)], header(0), WRITE),
        ([header(LAST)], header(LAST), REPEAT),
        ([header(LAST)], header(1), GAP),
        ([header(LAST - 1, 3)], header(1), WRITE),
        ([header(LAST - 1, 3)], header(LAST - 1, 3), REPEAT),
        ([header(LAST - 1, 3)], header(0), OLD),
        ([header(LAST - 1), header(LAST), header(0)], header(LAST - 1), REPEAT),
        ([header(LAST - 1), header(LAST), header(0)], header(LAST - 2), OLD),
    ],
    ids=lambda value: None,
)
def test_what_happens_to_a_batch(written, incoming, outcome):
    """Next in line is written, one of the last five repeats, an older one is a duplicate, a gap and an old epoch are refused."""
    state = ProducerState()
    for found in written:
        assert judge(state, found) == WRITE
        state.apply(found, NOW)
    assert judge(state, incoming) == outcome


def test_a_repetition_gets_the_first_answer():
    """The offsets of the batch that was written."""
    state = ProducerState()
    for number in range(BATCHES_KEPT):
        state.apply(header(number * 2, 2, offset=100 + number * 2), NOW)
    seen = state.check(header(4, 2))
    assert (seen.first_offset, seen.last_offset, seen.timestamp) == (104, 105, NOW)


@settings(deadline=None)
@given(st.integers(0, LAST), st.lists(st.integers(1, 4), min_size=1, max_size=12), st.booleans())
def test_a_producer_that_goes_on_is_always_served_and_its_retries_known(first, sizes, restart):
    """From any sequence, over the wrap, also after a snapshot: each next batch is written, the newest always repeats."""
    state, sequence, offset = ProducerState(), first, 0
    for size in sizes:
        found = header(sequence, size, offset=offset)
        assert judge(state, found) == WRITE
        state.apply(found, NOW)
        if restart:
            state = ProducerState.from_snapshot(state.snapshot(), NOW)
        seen = state.check(found)
        assert (seen.first_offset, seen.last_offset) == (offset, offset + size - 1)
        sequence = (sequence + size) % SEQUENCES
        offset += size
    assert judge(state, header((sequence + 1) % SEQUENCES)) == GAP


def test_a_start_forgets_none_of_the_batches_that_may_be_retried():
    """Five requests may be under way when a broker dies: each repeats after the snapshot, and none older; an epoch ends the last one."""
    state = ProducerState()
    for number in range(8):
        state.apply(header(number * 2, 2, epoch=1, offset=100 + number * 3), NOW)
    restored = ProducerState.from_snapshot(state.snapshot(), NOW)
    for number in range(3, 8):
        seen = restored.check(header(number * 2, 2, epoch=1))
        assert (seen.first_offset, seen.last_offset) == (100 + number * 3, 101 + number * 3)
    assert judge(restored, header(4, 2, epoch=1)) == OLD
    restored.apply(header(0, epoch=2), NOW)
    assert judge(ProducerState.from_snapshot(restored.snapshot(), NOW), header(14, 2, epoch=2)) == GAP


def test_batches_of_no_producer_leave_no_trace():
    """Only data of idempotent producers counts."""
    state = ProducerState()
    state.apply(header(0)._replace(producer_id=-1), NOW)
    assert len(state) == 0


def test_idle_producers_are_forgotten():
    """After producer.id.expiration.ms without a batch; then any sequence may come."""
    state = ProducerState()
    state.apply(header(0), NOW)
    state.apply(header(1), NOW + 50)
    state.expire(NOW + 150, 100)
    assert len(state) == 1
    state.expire(NOW + 151, 100)
    assert len(state) == 0
    assert judge(state, header(9)) == WRITE


def test_a_producer_that_writes_old_records_is_not_idle():
    """The broker's clock counts, not the records' times: years of history may be loaded without losing a sequence."""
    state = ProducerState()
    state.apply(header(0, timestamp=5), NOW)
    state.expire(NOW + 100, 100)
    assert judge(state, header(0)) == REPEAT
    restored = ProducerState.from_snapshot(state.snapshot(), NOW)
    restored.expire(NOW + 100, 100)
    assert judge(restored, header(0)) == REPEAT


def test_a_damaged_snapshot_is_refused():
    """Any flipped bit, and any cut, gives None, so that the log is read instead."""
    state = ProducerState()
    state.apply(header(3, 2), NOW)
    whole = state.snapshot()
    assert ProducerState.from_snapshot(whole, NOW).snapshot() == whole
    for cut in range(len(whole)):
        assert ProducerState.from_snapshot(whole[:cut], NOW) is None
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        assert ProducerState.from_snapshot(bytes(damaged), NOW) is None


def test_the_last_offset_of_each_producer_is_known():
    """For compaction, which keeps the batch that ends there."""
    state = ProducerState()
    state.apply(header(0, 3, offset=10), NOW)
    state.apply(header(3, 2, offset=20), NOW)
    assert state.last_records() == {7: (21, 0)}
