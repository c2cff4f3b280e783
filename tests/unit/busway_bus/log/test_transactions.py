"""Transactions in a log: what a reader of committed records sees, through rolls, crashes, damage and truncation."""

import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.busway_bus.log.transactional import NOW, committed, end, flush, stable_end, truncate, write

from busway_bus.kernel import limits
from busway_bus.log import aborted as aborted_module
from busway_bus.log import snapshots
from busway_bus.log.log_config import LogConfig
from busway_bus.log.partition_log import CorruptLog, PartitionLog
from busway_bus.testing.sim_files import PowerCut, SimFile, SimFiles
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import read_header
from busway_protocol.records.builder import BatchBuilder

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)
TXNINDEX = "t-0/00000000000000000000.txnindex"


def fresh() -> SimFiles:
    """A disk with one empty partition directory."""
    files = SimFiles()
    files.make_directory("t-0")
    return files


def open_log(files: SimFiles, config: LogConfig = CONFIG, **options) -> PartitionLog:
    """The log on that disk."""
    return PartitionLog(files, "t-0", config, now_ms=NOW, **options)


class Model:
    """What was written, in order: (producer, value, transaction) and (producer, committed)."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, bytes | None, bool | None]] = []

    def cut(self, offset: int) -> None:
        """Forget what is at this offset and behind it."""
        del self.entries[offset:]

    def visible(self) -> tuple[int, list[bytes]]:
        """The last stable offset, and what a reader of committed records has below it."""
        outcomes: dict[int, bool | None] = {}
        begins: dict[int, list[int]] = {}
        for offset, (producer, value, ended) in enumerate(self.entries):
            if value is not None and producer >= 0:
                begins.setdefault(producer, []).append(offset)
                outcomes[offset] = None
            elif value is None:
                for written in begins.pop(producer, []):
                    outcomes[written] = ended
        stable = min((offsets[0] for offsets in begins.values()), default=len(self.entries))
        return stable, [
            value
            for offset, (_, value, _) in enumerate(self.entries[:stable])
            if value is not None and outcomes.get(offset, True)
        ]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3)),
        st.tuples(st.just("plain"), st.just(0)),
        st.tuples(st.just("commit"), st.integers(0, 3)),
        st.tuples(st.just("abort"), st.integers(0, 3)),
        st.tuples(st.just("abort"), st.integers(0, 3)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 10**6)),
        st.tuples(st.just("kill"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 10**6)),
    ),
    max_size=60,
)


@pytest.fixture(params=[limits.RECOVERY_BYTES_MAX, 150], ids=["snapshots-at-rolls", "snapshots-between"])
def recovery_bytes(request, monkeypatch):
    """How much is appended between two snapshots: never so much in these histories, or every other batch."""
    monkeypatch.setattr(snapshots, "RECOVERY_BYTES_MAX", request.param)


def step(files: SimFiles, log: PartitionLog, model: Model, action: str, number: int, sequences: dict[int, int]):
    """Do one thing; the log, which may be another one then."""
    if action == "write":
        sequence = sequences.get(number, 0)
        write(log, number, (b"k", b"%d" % len(model.entries)), sequence=sequence)
        sequences[number] = sequence + 1
        model.entries.append((number, b"%d" % len(model.entries), None))
    elif action == "plain":
        builder = BatchBuilder()
        builder.append(NOW, b"k", b"%d" % len(model.entries))
        log.append(builder.build(), leader_epoch=0, now_ms=NOW)
        model.entries.append((-1, b"%d" % len(model.entries), None))
    elif action in {"commit", "abort"}:
        end(log, number, committed=action == "commit")
        model.entries.append((number, None, action == "commit"))
    elif action == "flush":
        flush(log)
    elif action == "truncate":
        offset = log.end_offset - number % 4 if log.end_offset else 0
        offset = max(offset, 0)
        truncate(log, offset, NOW)
        flush(log)  # or a power cut would bring back what was cut off
        model.cut(offset)
    else:
        flushed = log.flushed_offset
        if action == "restart":
            log.close(clean=True)
        elif action == "cut":
            files.cut_power(lambda limit: number % limit)
        log = open_log(files, clean=action == "restart", flushed=flushed)
        assert log.end_offset >= flushed
        model.cut(log.end_offset)
    if action in {"truncate", "cut", "kill"}:
        sequences.clear()
        sequences.update({producer: entry.last_sequence + 1 for producer, entry in log.producers})
    return log


@pytest.mark.slow
@pytest.mark.usefixtures("recovery_bytes")
@given(ACTIONS, st.integers(100, 600), st.integers(0, 10**6))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_a_reader_of_committed_records_sees_what_was_committed_and_nothing_else(actions, max_bytes, start):
    """After any history of transactions, rolls, flushes, kills, power cuts, restarts and truncations."""
    files, model, sequences = fresh(), Model(), {}
    log = open_log(files)
    for action, number in actions:
        log = step(files, log, model, action, number, sequences)
    stable, values = model.visible()
    assert stable_end(log) == stable
    assert [record.value for record in committed(log, max_bytes=max_bytes)] == values
    offset = start % (log.end_offset + 1)
    behind = [record.value for record in committed(log, offset=offset, max_bytes=max_bytes)]
    assert behind == [value for value in values if int(value) >= offset], "also from the middle of a transaction"


def history(log: PartitionLog) -> None:
    """Three producers with overlapping transactions over some segments, the last one open."""
    for at in range(6):
        write(log, 1, (b"a", b"1-%d" % at), sequence=at * 2)
        write(log, 2, (b"b", b"2-%d" % at), sequence=at)
        write(log, 1, (b"a", b"1-%d" % at), sequence=at * 2 + 1)
        end(log, 1, committed=at % 2 == 0)
        end(log, 2, committed=at % 3 == 0)
        flush(log)
    write(log, 3, (b"c", b"3"))
    flush(log)


def seen(log: PartitionLog) -> tuple[int, list[bytes], list[list]]:
    """What is known of transactions: where the open one begins, what was committed, and the index of each segment."""
    indexes = [segment.transactions.all() for segment in log.closed_segments()] + [log.active.transactions.all()]
    return stable_end(log), [record.value for record in committed(log)], indexes


def test_the_index_has_the_aborted_transactions_of_its_segment_in_kafkas_format():
    """Version, producer, first offset, offset of the marker, last stable offset from then on; only where there is one is there a file."""
    files = fresh()
    log = open_log(files, LogConfig())
    write(log, 1, (b"k", b"v"))
    write(log, 2, (b"k", b"v"))
    end(log, 2, committed=True)
    assert TXNINDEX not in files.list("t-0")
    end(log, 1, committed=False)
    assert bytes(files.open(TXNINDEX).content) == bytes.fromhex(
        "00000000000000000001000000000000000000000000000000030000000000000004"
    )
    write(log, 1, (b"k", b"v"), sequence=1)
    write(log, 2, (b"k", b"v"), sequence=1)
    end(log, 2, committed=False)
    assert [tuple(entry) for entry in log.active.transactions.all()] == [(1, 0, 3, 4), (2, 5, 6, 4)]


def test_the_end_of_what_never_began_is_in_no_index():
    """A coordinator may have added a partition that its producer did not write to."""
    log = open_log(fresh())
    end(log, 1, committed=False)
    assert (log.end_offset, log.active.transactions.count, stable_end(log)) == (1, 0, 1)


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_knows_what_was_open_and_what_was_aborted(clean):
    """After a clean stop from the files, after a kill rebuilt behind the newest snapshot."""
    files = fresh()
    log = open_log(files)
    history(log)
    before, flushed = seen(log), log.flushed_offset
    if clean:
        log.close(clean=True)
    again = open_log(files, clean=clean, flushed=flushed)
    assert seen(again) == before
    assert again.producers.is_open(3, 0)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["cut", "flipped", "grown", "gone"])
def test_a_damaged_index_is_made_anew(clean, damage):
    """Whichever segment's it is; after a clean stop only its size is looked at, as with the other indexes."""
    files = fresh()
    log = open_log(files)
    history(log)
    before, flushed = seen(log), log.flushed_offset
    log.close(clean=True)
    for name in [name for name in files.list("t-0") if name.endswith(".txnindex")]:
        file = files.open(f"t-0/{name}")
        if damage == "cut":
            file.truncate(file.size - 1)
        elif damage == "grown":
            file.append([b"x"])
        elif damage == "flipped" and not clean:
            file.content[1] ^= 1
        elif damage == "gone" and not clean and name > "00000000000000000020":
            continue
        again = open_log(files, clean=clean, flushed=flushed)
        assert seen(again) == before
        again.close(clean=True)


@pytest.mark.parametrize("tail", [b"x", bytes(34)], ids=["torn", "ahead of its log"])
def test_an_index_that_a_crash_left_unfinished_is_no_damage(caplog, tail):
    """Behind the newest snapshot nothing was said to be on disk; below it, and after a clean stop, it is logged."""
    caplog.set_level(logging.DEBUG)
    files = fresh()
    log = open_log(files)
    history(log)
    last = None
    while f"{last}.txnindex" not in files.list("t-0"):  # a record of the transaction may be in the segment before
        write(log, 7, (b"k", b"v"), sequence=0 if last is None else 1)
        end(log, 7, committed=False)
        last = max(name for name in files.list("t-0") if name.endswith(".log")).removesuffix(".log")
    flush(log)
    before, flushed = seen(log), log.flushed_offset
    named = sorted(name for name in files.list("t-0") if name.endswith(".txnindex"))
    files.open(f"t-0/{named[-1]}").append([tail])
    log = open_log(files, clean=False, flushed=flushed)
    assert seen(log) == before
    levels = [record.levelname for record in caplog.records if "txnindex" in record.getMessage()]
    assert levels == ["DEBUG"]
    caplog.clear()
    log.close(clean=True)
    files.open(f"t-0/{named[0]}").append([tail[:1]])
    assert seen(open_log(files, clean=False, flushed=flushed)) == before
    levels = [record.levelname for record in caplog.records if "txnindex" in record.getMessage()]
    assert levels == ["WARNING"]


def test_a_damaged_index_that_is_read_is_told():
    """A reader gets an error, never records that were rolled back."""
    files = fresh()
    log = open_log(files, LogConfig())
    write(log, 1, (b"k", b"v"))
    end(log, 1, committed=False)
    files.open(TXNINDEX).content[1] ^= 1
    with pytest.raises(Exception, match="txnindex is damaged"):
        committed(log)


def test_every_step_of_a_history_may_be_the_last():
    """A power cut at any step on the disk: what a start finds is as if the history had ended with some append."""
    outcomes = {(0, ())}
    model = fresh()
    log = open_log(model)

    class Watch(PartitionLog):
        """Notes what would be seen after each append."""

        def _write(self, *arguments):
            info = super()._write(*arguments)
            outcomes.add((stable_end(self), tuple(record.value for record in committed(self))))
            return info

    history(Watch(fresh(), "t-0", CONFIG, now_ms=NOW))
    steps = 0
    while True:
        files = fresh()
        log = open_log(files)
        files.steps_left = steps
        try:
            history(log)
        except PowerCut:
            pass
        else:
            break
        files.steps_left = None
        for left in (0, 10**6):
            flushed = log.flushed_offset
            files.cut_power(lambda limit, left=left: left % limit)
            log = open_log(files, flushed=flushed)
            assert (stable_end(log), tuple(record.value for record in committed(log))) in outcomes, steps
            for entry in log.active.transactions.all():
                assert entry.last_offset < log.end_offset
        steps += 1
    assert steps > 50


def test_a_marker_that_cannot_be_written_leaves_no_entry(monkeypatch):
    """The entry of a marker is written before it, so that no reader misses it; where the marker fails it is taken back."""
    files = fresh()
    log = open_log(files, LogConfig())
    write(log, 1, (b"k", b"v"))
    append = SimFile.append

    def full(file, pieces):
        if file is log.active._log:
            raise OSError(28, "No space left on device")
        append(file, pieces)

    with monkeypatch.context() as patched:
        patched.setattr(SimFile, "append", full)
        with pytest.raises(OSError, match="No space"):
            end(log, 1, committed=False)
    assert (log.active.transactions.count, files.open(TXNINDEX).size, stable_end(log)) == (0, 0, 0)
    end(log, 1, committed=True)
    assert [record.value for record in committed(log)] == [b"v"]


def test_deleted_segments_take_their_index_along():
    """Retention, and a start that finds an index without its segment."""
    files = fresh()
    log = open_log(files)
    history(log)
    log.advance_start(log.active.base_offset, NOW)
    log.remove_deleted(NOW)
    assert [name for name in files.list("t-0") if name.startswith("0" * 20)] == [
        f"{'0' * 20}{suffix}.deleted" for suffix in (".index", ".log", ".timeindex", ".txnindex")
    ] or not any(name.startswith("0" * 20) and not name.endswith(".deleted") for name in files.list("t-0"))
    log.close(clean=True)
    files.open("t-0/00000000000000000001.txnindex").append([bytes(34)])
    open_log(files, clean=True)
    assert "00000000000000000001.txnindex" not in files.list("t-0")


def test_an_open_transaction_is_not_waited_for_below_the_start():
    """Records that are deleted have no waiters."""
    log = open_log(fresh(), LogConfig())
    write(log, 1, (b"k", b"v"))
    builder = BatchBuilder()
    builder.append(NOW, b"k", b"plain")
    log.append(builder.build(), leader_epoch=0, now_ms=NOW)
    flush(log)
    log.advance_start(2, NOW)
    assert stable_end(log) == 2


def test_a_reader_is_told_of_few_aborted_transactions_at_a_time(monkeypatch):
    """Where there are more in what it would read, it is given less."""
    monkeypatch.setattr(aborted_module.Overlaps.__init__, "__defaults__", (3,))
    log = open_log(fresh(), LogConfig())
    for at in range(10):
        write(log, at, (b"k", b"no"))
        end(log, at, committed=False)
        write(log, at, (b"k", b"%d" % at), sequence=1)
        end(log, at, committed=True)
    batches, aborted = log.committed_slice(0, 10**6, up_to=log.end_offset)
    assert len(aborted) == 3
    assert batches is not None
    assert len(batches) < log.size_bytes
    assert [record.value for record in committed(log, max_bytes=10**6)] == [b"%d" % at for at in range(10)]


def test_transactions_that_are_open_at_once_are_all_told_however_many(monkeypatch):
    """Reading less would spare none of them."""
    monkeypatch.setattr(aborted_module.Overlaps.__init__, "__defaults__", (3,))
    log = open_log(fresh(), LogConfig())
    for producer in range(6):
        write(log, producer, (b"k", b"no"))
    write(log, 9, (b"k", b"yes"))
    for producer in range(6):
        end(log, producer, committed=False)
    end(log, 9, committed=True)
    _, aborted = log.committed_slice(5, 10**6, up_to=log.end_offset)
    assert {producer for producer, _ in aborted} == set(range(6))
    assert [record.value for record in committed(log, offset=5)] == [b"yes"]


def test_control_batches_and_stray_batches_of_transactions_are_refused():
    """Clients write neither markers nor anything of a transaction that is unknown."""
    log = open_log(fresh())
    marker = BatchBuilder(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True, control=True)
    marker.append(NOW, b"\0\0\0\1", b"\0\0\0\0\0\0")
    batch = BatchBuilder(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    batch.append(NOW, b"k", b"v")
    nobody = BatchBuilder(transactional=True)
    nobody.append(NOW, b"k", b"v")
    for builder, code in (
        (marker, ErrorCode.INVALID_RECORD),
        (nobody, ErrorCode.INVALID_RECORD),
        (batch, ErrorCode.INVALID_TXN_STATE),
    ):
        with pytest.raises(KafkaError) as refused:
            log.append(builder.build(), leader_epoch=0, now_ms=NOW)
        assert refused.value.code is code
    assert log.end_offset == 0


def test_a_marker_in_the_log_that_is_none_stops_the_start():
    """Whether a transaction was committed is never guessed."""
    files = fresh()
    log = open_log(files, LogConfig())
    write(log, 1, (b"k", b"v"))
    bad = BatchBuilder(producer_id=1, producer_epoch=0, transactional=True, control=True)
    bad.append(NOW, b"\0\0\0\1", b"")
    log._write(bad.build(), read_header(bad.build()), 0, NOW)
    with pytest.raises(CorruptLog, match="no coordinator epoch"):
        open_log(files)


def test_an_abort_that_is_cut_off_has_never_been():
    """The transaction is open again, and may be committed."""
    log = open_log(fresh(), LogConfig())
    write(log, 1, (b"k", b"v"))
    end(log, 1, committed=False)
    flush(log)
    truncate(log, 1, NOW)
    assert (log.active.transactions.count, stable_end(log)) == (0, 0)
    end(log, 1, committed=True)
    assert [record.value for record in committed(log)] == [b"v"]


@pytest.mark.usefixtures("recovery_bytes")
@pytest.mark.parametrize("torn", [True, False])
def test_a_kill_leaves_each_abort_once_or_not_at_all(torn):
    """Behind a snapshot in the middle of a segment: a marker that was torn off is in no index, one that is there is there once."""
    files = fresh()
    log = open_log(files, LogConfig())
    for sequence in range(2):
        write(log, 1, (b"k", b"%d" % sequence), sequence=sequence)
        end(log, 1, committed=False)
        flush(log)
    write(log, 2, (b"k", b"2"))
    before_marker = log.size_bytes
    end(log, 2, committed=False)
    if torn:
        files.open("t-0/00000000000000000000.log").truncate(before_marker)
    again = open_log(files, LogConfig(), flushed=4)
    indexed = [(1, 0, 1, 2), (1, 2, 3, 4), (2, 4, 5, 6)]
    assert [tuple(entry) for entry in again.active.transactions.all()] == (indexed[:2] if torn else indexed)
    if torn:
        end(again, 2, committed=True)
        assert [record.value for record in committed(again)] == [b"2"]
