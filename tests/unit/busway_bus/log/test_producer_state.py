"""Sequence numbers of idempotent producers (KIP-98), as a table."""

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway_bus.kernel.limits import IDLE_PRODUCERS_KEPT_MS, PRODUCER_BYTES
from busway_bus.kernel.transactions import EndTransaction
from busway_bus.log import producer_state
from busway_bus.log.producer_entry import BATCHES_KEPT, SEQUENCES
from busway_bus.log.producer_memory import ProducerMemory
from busway_bus.log.producer_state import ProducerState
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import BatchHeader, read_header
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.control import TransactionMarker, end_transaction_marker

NOW = 1_700_000_000_000
LAST = 2_147_483_647
WRITE, REPEAT = "write", "repeat"
NOTHING_TO_END = "nothing to end"
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
OLD = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def header(sequence: int, count: int = 1, *, epoch: int = 0, offset: int = 0, timestamp: int = NOW) -> BatchHeader:
    """The header of a batch of producer 7."""
    builder = BatchBuilder(producer_id=7, producer_epoch=epoch, base_sequence=sequence)
    for _ in range(count):
        builder.append(timestamp, b"k", b"v")
    return read_header(builder.build(offset))


def judge(state: ProducerState, batch: BatchHeader) -> object:
    """What happens to a batch: written, known as a repetition, or its error code."""
    try:
        return WRITE if state.check(batch) is None else REPEAT
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
    for batch in written:
        assert judge(state, batch) == WRITE
        state.apply(batch, NOW)
    assert judge(state, incoming) == outcome


def test_a_repetition_gets_the_first_answer():
    """The offsets of the batch that was written."""
    state = ProducerState()
    for number in range(BATCHES_KEPT):
        state.apply(header(number * 2, 2, offset=100 + number * 2), NOW)
    seen = state.check(header(4, 2))
    assert (seen.first_offset, seen.last_offset, seen.timestamp) == (104, 105, NOW)


@given(st.integers(0, LAST), st.lists(st.integers(1, 4), min_size=1, max_size=12), st.booleans())
def test_a_producer_that_goes_on_is_always_served_and_its_retries_known(first, sizes, restart):
    """From any sequence, over the wrap, also after a snapshot: each next batch is written, the newest always repeats."""
    state, sequence, offset = ProducerState(), first, 0
    for size in sizes:
        batch = header(sequence, size, offset=offset)
        assert judge(state, batch) == WRITE
        state.apply(batch, NOW)
        if restart:
            state = ProducerState.from_snapshot(state.snapshot(), NOW)
        seen = state.check(batch)
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
    assert dict(state.last_records()) == {7: (21, 0)}


# Transactions


def transactional(sequence: int, *, producer: int = 7, epoch: int = 0, offset: int = 0) -> BatchHeader:
    """The header of a batch of a producer's transaction."""
    builder = BatchBuilder(producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True)
    builder.append(NOW, b"k", b"v")
    return read_header(builder.build(offset))


def marker(*, epoch: int = 0, version: int = 1, coordinator_epoch: int = 0, producer: int = 7) -> EndTransaction:
    """The end of a producer's transaction."""
    return EndTransaction(
        producer_id=producer,
        producer_epoch=epoch,
        committed=True,
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


def end(state: ProducerState, offset: int, *, producer: int = 7, epoch: int = 0, coordinator_epoch: int = 0) -> None:
    """Apply the marker that commits a producer's transaction."""
    batch = end_transaction_marker(
        producer, epoch, committed=True, coordinator_epoch=coordinator_epoch, timestamp_ms=NOW
    )
    header = read_header(batch)._replace(base_offset=offset)
    state.end(header, TransactionMarker(committed=True, coordinator_epoch=coordinator_epoch, timestamp=NOW), NOW)


def code(refused: Callable[[], object]) -> ErrorCode | None:
    """The code with which something is refused."""
    try:
        refused()
    except KafkaError as problem:
        return problem.code
    return None


def test_the_first_batch_of_a_transaction_needs_its_coordinators_word_and_the_others_do_not():
    """KIP-890, part 1: nothing is written outside of an ongoing transaction."""
    state = ProducerState()
    first, second = transactional(0, offset=10), transactional(1, offset=11)
    assert code(lambda: state.check(first)) is ErrorCode.INVALID_TXN_STATE
    word = state.verification(first, NOW, from_zero=False)
    assert state.check(first, word) is None
    assert state.apply(first, NOW)
    assert state.first_unstable_offset == 10
    assert state.verification(second, NOW, from_zero=False) is None
    assert state.check(second) is None
    assert not state.apply(second, NOW)
    assert state.first_unstable_offset == 10


def test_a_word_is_void_when_the_transaction_ends_before_the_batch_is_written():
    """Or a late batch would open a transaction that never ends; asked again, its coordinator knows whether it is late."""
    state = ProducerState()
    late = transactional(0)
    word = state.verification(late, NOW, from_zero=False)
    end(state, 5)
    assert code(lambda: state.check(late, word)) is ErrorCode.NOT_ENOUGH_REPLICAS
    again = state.verification(late, NOW, from_zero=False)
    assert again is not word
    assert code(lambda: state.check(late, word)) is ErrorCode.NOT_ENOUGH_REPLICAS, (
        "another transaction's word is none either"
    )
    assert state.check(late, again) is None


def test_while_the_first_sequence_waits_none_behind_it_is_written():
    """One whose verification failed is sent again, and must not find a gap for ever."""
    state = ProducerState()
    word = state.verification(transactional(3), NOW, from_zero=False)
    assert state.verification(transactional(4), NOW, from_zero=False) is word
    assert code(lambda: state.check(transactional(4), word)) is GAP
    assert state.check(transactional(3), word) is None
    newer = state.verification(transactional(5, epoch=1), NOW, from_zero=False)
    assert state.check(transactional(5, epoch=1), newer) is None, "a new epoch has sequences of its own"


def test_with_transaction_version_2_an_epoch_begins_at_sequence_0():
    """Each transaction has an epoch of its own (KIP-890, part 2)."""
    state = ProducerState()
    word = state.verification(transactional(3), NOW, from_zero=True)
    assert code(lambda: state.check(transactional(3), word)) is GAP
    word = state.verification(transactional(0), NOW, from_zero=True)
    assert state.check(transactional(0), word) is None
    state.apply(transactional(0), NOW)
    end(state, 5, epoch=1)
    assert code(lambda: state.verification(transactional(1), NOW, from_zero=True)) is FENCED
    for sequence, expected in ((1, GAP), (0, None)):
        batch = transactional(sequence, epoch=1)
        word = state.verification(batch, NOW, from_zero=True)
        assert code(lambda batch=batch, word=word: state.check(batch, word)) is expected


def test_a_batch_outside_of_the_open_transaction_is_refused():
    """It would be taken for a part of it by some and not by others."""
    state = ProducerState()
    state.apply(transactional(0), NOW)
    assert code(lambda: state.check(header(1))) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("open_epoch", "ended_epoch", "incoming", "outcome"),
    [
        (0, None, marker(), None),
        (1, None, marker(), FENCED),
        (0, None, marker(epoch=1, version=2), None),
        (0, None, marker(epoch=0, version=2), FENCED),
        (None, 1, marker(epoch=1, version=2), None),
        (None, 1, marker(epoch=1, version=1), None),
        (None, 1, marker(epoch=0, version=2), NOTHING_TO_END),
        (None, 1, marker(epoch=0, version=1), NOTHING_TO_END),
        (32767, None, marker(epoch=32767, version=2), None),
        (None, None, marker(epoch=0, version=2), None),
    ],
)
def test_which_epoch_an_end_may_have(open_epoch, ended_epoch, incoming, outcome):
    """As Kafka 4.3.1 has it (KIP-1228): version 2 needs a new one, unless it is repeated or there is none left."""
    state = ProducerState()
    if open_epoch is not None:
        state.apply(transactional(0, epoch=open_epoch), NOW)
    if ended_epoch is not None:
        end(state, 5, epoch=ended_epoch)
    if outcome is NOTHING_TO_END:
        assert not state.check_marker(incoming)
    elif outcome is None:
        assert state.check_marker(incoming)
    else:
        assert code(lambda: state.check_marker(incoming)) is outcome


def test_a_strangers_batch_does_not_keep_a_transaction_from_ending():
    """It takes over the producer's id before the transaction has written here, with the last epoch there is; one that comes later is refused."""
    state = ProducerState()
    state.apply(header(0, epoch=32767), NOW)
    assert not state.check_marker(marker(epoch=1, version=2))
    end(state, 5, epoch=32767, coordinator_epoch=3)
    stale = marker(epoch=1, version=2, coordinator_epoch=2)
    assert code(lambda: state.check_marker(stale)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    state = ProducerState()
    state.apply(transactional(0), NOW)
    assert code(lambda: state.check(header(0, epoch=32767))) is ErrorCode.INVALID_TXN_STATE
    assert state.check_marker(marker(epoch=1, version=2))


def test_a_coordinator_that_was_replaced_ends_nothing():
    """Its epoch is older than one that was seen; the same one may repeat itself."""
    state = ProducerState()
    end(state, 5, coordinator_epoch=3)
    assert code(lambda: state.check_marker(marker(coordinator_epoch=2))) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert state.check_marker(marker(coordinator_epoch=3))


def test_an_end_tells_where_the_oldest_open_transaction_is_then():
    """Which is the last stable offset in the index."""
    state = ProducerState()
    for producer, offset in ((1, 10), (2, 20), (3, 30)):
        state.apply(transactional(0, producer=producer, offset=offset), NOW)
    batch = end_transaction_marker(1, 0, committed=False, coordinator_epoch=0, timestamp_ms=NOW)
    abort = TransactionMarker(committed=False, coordinator_epoch=0, timestamp=NOW)
    assert state.ended_by(read_header(batch)._replace(base_offset=40), abort) == (1, 10, 40, True, 20)
    end(state, 40, producer=2)
    assert state.first_unstable_offset == 10
    end(state, 41, producer=1)
    assert state.first_unstable_offset == 30
    end(state, 42, producer=3)
    assert state.first_unstable_offset is None


def test_an_open_transaction_keeps_its_producer_and_a_snapshot_keeps_it():
    """However long it is idle; also one that has ended a transaction and written nothing since."""
    state = ProducerState()
    state.apply(transactional(0, producer=2, offset=20), NOW)
    state.apply(transactional(0, producer=1, offset=10), NOW)
    state.apply(transactional(1, producer=1, offset=21), NOW)
    end(state, 22, producer=3, epoch=4, coordinator_epoch=9)
    state.expire(NOW + 10, 5)
    assert [producer for producer, _ in state] == [2, 1]
    end(state, 22, producer=3, epoch=4, coordinator_epoch=9)
    restored = ProducerState.from_snapshot(state.snapshot(), NOW)
    assert restored is not None
    assert restored.first_unstable_offset == 10
    assert {producer: entry.transaction_start for producer, entry in restored} == {2: 20, 1: 10, 3: -1}
    assert [(e.epoch, e.coordinator_epoch, e.last_sequence, e.last_timestamp) for p, e in restored if p == 3] == [
        (4, 9, -1, NOW)
    ]
    assert restored.snapshot() == state.snapshot()
    end(restored, 30, producer=1)
    assert restored.first_unstable_offset == 20


def test_words_that_nobody_takes_are_bounded(monkeypatch):
    """In number, and in time."""
    monkeypatch.setattr(producer_state, "VERIFICATIONS_MAX", 2)
    state = ProducerState()
    words = {
        producer: state.verification(transactional(0, producer=producer), NOW, from_zero=False)
        for producer in (1, 2, 3)
    }
    assert [state.holds(producer, word) for producer, word in words.items()] == [False, True, True]
    state.expire(NOW + 10, 5)
    assert not state.holds(3, words[3])


def of(producer: int, sequence: int = 0) -> BatchHeader:
    """The header of a batch of some producer."""
    return header(sequence)._replace(producer_id=producer)


def test_a_producer_takes_no_more_than_it_is_counted_with():
    """With one batch and with many, snapshot or not."""
    state = ProducerState()
    count = 5_000
    headers = [[of(2**40 + producer, sequence) for sequence in range(BATCHES_KEPT + 2)] for producer in range(count)]
    tracemalloc.start()
    try:
        for number in (0, BATCHES_KEPT + 1):
            for batches in headers:
                for batch in batches[: number + 1] if number else batches[:1]:
                    state.apply(batch._replace(base_offset=2**40 + batch.base_sequence), 2**41 + batch.base_sequence)
            taken, _ = tracemalloc.get_traced_memory()
            assert taken / count <= PRODUCER_BYTES
    finally:
        tracemalloc.stop()


def test_who_is_not_remembered_is_refused_where_there_is_no_room(caplog: pytest.LogCaptureFixture):
    """A remembered producer goes on, in this partition and in another; the log says once what helps, and there is room when some have gone."""
    memory = ProducerMemory(2 * PRODUCER_BYTES)
    state, other = ProducerState(), ProducerState()
    state.join(memory)
    other.join(memory)
    state.apply(of(1), NOW)
    assert state.check(of(2)) is None
    other.apply(of(2), NOW + 10)
    for _ in range(3):
        assert code(lambda: state.check(of(2))) is ErrorCode.POLICY_VIOLATION
        assert code(lambda: state.check(transactional(0)._replace(producer_id=3))) is not None
        assert code(lambda: state.verification(of(3), NOW, from_zero=True)) is ErrorCode.POLICY_VIOLATION
        assert not state.check_marker(marker(producer=3)), "it would be remembered for nothing"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "producer.id.expiration.ms" in caplog.text
    assert state.check(of(1, 1)) is None
    assert other.check(of(2, 1)) is None
    state.expire(NOW + 1_000, 995)
    assert memory.used == PRODUCER_BYTES
    assert state.check(of(3)) is None
    assert other.leave() is memory
    assert memory.used == 0


def test_idle_producers_make_room_where_it_becomes_short():
    """With half of it taken they are remembered for a quarter of an hour, and never for longer than they are anyway."""
    memory, day = ProducerMemory(4 * PRODUCER_BYTES), 24 * 3_600_000
    state = ProducerState()
    state.join(memory)
    state.apply(of(1), NOW)
    assert memory.kept_ms(day) == day
    state.apply(of(2), NOW + IDLE_PRODUCERS_KEPT_MS)
    assert memory.kept_ms(day) == IDLE_PRODUCERS_KEPT_MS
    assert memory.kept_ms(1_000) == 1_000
    state.expire(NOW + IDLE_PRODUCERS_KEPT_MS + 1, memory.kept_ms(day))
    assert [producer_id for producer_id, _ in state] == [2]
    assert memory.kept_ms(day) == day


def test_what_a_snapshot_tells_is_what_was_when_it_was_taken():
    """A producer goes on, begins a new epoch, ends a transaction or is forgotten before it is written down."""
    state = ProducerState()
    state.apply(of(1), NOW)
    state.apply(of(2), NOW)
    state.apply(transactional(0), NOW)
    before = state.snapshot()
    taken = state.taken()
    state.apply(of(1, 1), NOW + 1)
    state.apply(of(2)._replace(producer_epoch=1), NOW)
    state.apply(of(3), NOW)
    end(state, 5)
    again = state.taken()
    state.expire(NOW + 10_000, 5_000)
    assert taken.encode() == before
    assert len(state) == 0
    restored = ProducerState.from_snapshot(again.encode(), NOW)
    assert restored is not None
    assert [(producer_id, entry.epoch, entry.last_sequence) for producer_id, entry in restored] == [
        (1, 0, 1),
        (2, 1, 0),
        (7, 0, 0),
        (3, 0, 0),
    ]
