"""Rolls, retention, look-ups by time, and deletion of records, on the simulated disk."""

from errno import ENOSPC

import pytest
from tests.unit.busway_bus.log.transactional import truncate

from busway_bus.log import snapshots
from busway_bus.log.log_config import LogConfig
from busway_bus.log.partition_log import PartitionLog
from busway_bus.log.segment import Segment
from busway_bus.testing.sim_files import PowerCut, SimFiles
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import CorruptBatch, iter_batches
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import decode_records

NOW = 1_700_000_000_000
HOUR = 3_600_000
FOREVER = LogConfig(retention_ms=-1, segment_bytes=400)


def make(config: LogConfig, files: SimFiles | None = None) -> PartitionLog:
    """An empty log."""
    files = files or SimFiles()
    files.make_directory("t-0")
    return PartitionLog(files, "t-0", config, now_ms=NOW)


def append(
    log: PartitionLog, *timestamps: int, now_ms: int = NOW, value: bytes = b"x" * 60, leader_epoch: int = 2
) -> int:
    """One batch with a record for each timestamp; its first offset."""
    builder = BatchBuilder()
    for timestamp in timestamps:
        builder.append(timestamp, b"k", value)
    return log.append(builder.build(), leader_epoch=leader_epoch, now_ms=now_ms).first_offset


def flush(log: PartitionLog) -> None:
    """Put everything on disk."""
    point = log.flush_point()
    point.sync()
    log.flushed(point)


def result(search):
    """What a search finds in the end."""
    try:
        while True:
            next(search)
    except StopIteration as over:
        return over.value


def offset_for_time(log: PartitionLog, timestamp: int, *, up_to: int):
    """Offset, timestamp and epoch of the first record at a time."""
    return result(log.search_time(timestamp, up_to=up_to))


def max_timestamp(log: PartitionLog):
    """The first record with the largest timestamp."""
    return result(log.search_largest_time(up_to=log.end_offset))


def bases(log: PartitionLog) -> list[int]:
    """Where the segments begin."""
    return [segment.base_offset for segment in log._segments]


def test_a_segment_is_closed_when_it_is_full_or_old():
    """By segment.bytes before the batch that does not fit, by segment.ms at the next maintenance; never when it is empty."""
    log = make(LogConfig(segment_bytes=400, segment_ms=1000, retention_ms=-1))
    for _ in range(4):
        append(log, NOW)
    assert bases(log) == [0, 3]
    log.maintain(NOW + 1000)
    assert bases(log) == [0, 3]
    log.maintain(NOW + 1001)
    assert bases(log) == [0, 3, 4]
    log.maintain(NOW + 10**6)
    assert bases(log) == [0, 3, 4]


def test_a_compacted_log_is_closed_in_time_to_be_cleaned():
    """max.compaction.lag.ms counts like segment.ms."""
    log = make(LogConfig(cleanup_policy=("compact",), max_compaction_lag_ms=10))
    append(log, NOW)
    log.maintain(NOW + 11)
    assert bases(log) == [0, 1]


def test_a_full_index_closes_a_segment():
    """segment.index.bytes bounds the offset index."""
    log = make(LogConfig(retention_ms=-1, index_interval_bytes=1, segment_index_bytes=32))
    for _ in range(10):
        append(log, NOW)
    assert len(bases(log)) > 2
    assert all(segment.indexes.offset_entries <= 4 for segment in log._segments)


def test_retention_by_time_goes_by_the_newest_record():
    """A segment goes when its largest timestamp is too old, the oldest first, and the active one after a roll."""
    log = make(LogConfig(segment_bytes=300, retention_ms=HOUR))
    for at in range(6):
        append(log, NOW + at)
    flush(log)
    assert bases(log) == [0, 2, 4]
    log.maintain(NOW + HOUR + 1)
    assert log.start_offset == 0
    log.maintain(NOW + HOUR + 2)
    assert (log.start_offset, bases(log)) == (2, [2, 4])
    log.maintain(NOW + HOUR + 6)
    assert (log.start_offset, log.end_offset, bases(log)) == (6, 6, [6])
    assert append(log, NOW) == 6


def test_one_young_record_keeps_its_segment_and_those_behind_it():
    """Retention never makes a hole."""
    log = make(LogConfig(segment_bytes=300, retention_ms=HOUR))
    for timestamp in (NOW + HOUR, NOW, NOW, NOW):
        append(log, timestamp)
    flush(log)
    log.maintain(NOW + HOUR + 2)
    assert log.start_offset == 0


def test_retention_by_size_keeps_at_least_what_is_asked_for():
    """The oldest segment goes only when the rest is still that large; the active one stays."""
    log = make(LogConfig(segment_bytes=300, retention_bytes=500, retention_ms=-1))
    for _ in range(8):
        append(log, NOW)
    flush(log)
    sizes = [segment.size for segment in log._segments]
    assert len(sizes) == 4
    log.maintain(NOW)
    assert log.size_bytes == sum(sizes[2:])
    assert log.size_bytes >= 500
    log.config = LogConfig(segment_bytes=300, retention_bytes=0, retention_ms=-1)
    log.maintain(NOW)
    assert (log.start_offset, log.size_bytes) == (8, 0)


def test_what_is_not_flushed_is_not_deleted():
    """The high watermark must be past a segment; a roll of the active one lets the next flush get there."""
    log = make(LogConfig(retention_ms=HOUR, durability="os"))
    append(log, NOW)
    log.maintain(NOW + 2 * HOUR)
    assert (log.start_offset, log.wants_flush) == (0, True)
    flush(log)
    log.maintain(NOW + 2 * HOUR)
    assert log.start_offset == 1


def test_retention_without_limits_and_compaction_delete_nothing():
    """-1 keeps everything, and so does cleanup.policy=compact alone."""
    for config in (FOREVER, LogConfig(cleanup_policy=("compact",), segment_bytes=400, retention_ms=1)):
        log = make(config)
        for _ in range(8):
            append(log, NOW)
        flush(log)
        log.maintain(NOW + 10**9)
        assert log.start_offset == 0


def test_a_time_is_found_in_every_segment():
    """The first record at or after a time, also where times go back, and nothing above the limit."""
    log = make(LogConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=-1))
    times = [NOW + at * 10 + (at % 3 - 1) * 25 for at in range(60)]
    for at in range(0, 60, 2):
        append(log, *times[at : at + 2], value=b"")
    assert len(bases(log)) > 3
    for wanted in range(NOW - 30, NOW + 650, 5):
        expected = next(((at, time, 2) for at, time in enumerate(times) if time >= wanted), None)
        assert offset_for_time(log, wanted, up_to=60) == expected
        limited = expected if expected and expected[0] < 31 else None
        assert offset_for_time(log, wanted, up_to=31) == limited
    assert max_timestamp(log) == (times.index(max(times)), max(times), 2)
    log.advance_start(20, NOW)
    match = offset_for_time(log, NOW, up_to=60)
    assert match[0] == 20


def test_times_of_an_empty_log_and_of_records_without_any():
    """Nothing is found."""
    log = make(FOREVER)
    assert offset_for_time(log, 0, up_to=0) is None
    assert max_timestamp(log) is None
    append(log, -1)
    assert offset_for_time(log, 0, up_to=1) is None
    assert max_timestamp(log) is None


def test_the_largest_time_is_that_of_a_record_that_may_be_read():
    """Not of one below the start, in the same segment or batch, nor of one at or above the high watermark."""
    log = make(LogConfig(retention_ms=-1))
    for at in range(0, 40, 4):
        append(log, *(NOW - number for number in range(at, at + 4)))
    for start in (0, 1, 4, 7, 39):
        log.advance_start(start, NOW)
        assert max_timestamp(log) == (start, NOW - start, 2)
    log.advance_start(40, NOW)
    assert max_timestamp(log) is None
    log = make(FOREVER)
    for at in range(20):
        append(log, NOW + at, NOW + at)
    for up_to in (1, 2, 7, 39, 40):
        at = (up_to - 1) // 2
        assert result(log.search_largest_time(up_to=up_to)) == (at * 2, NOW + at, 2)
    assert result(log.search_largest_time(up_to=0)) is None


def test_the_brokers_clock_stamps_a_log_append_time_topic():
    """Records get the time of the append, whatever their producer said, and the checksum fits."""
    log = make(LogConfig(message_timestamp_type="LogAppendTime"))
    append(log, 5, 6, now_ms=NOW)
    (_, whole), *_ = iter_batches(log.read(0, 10_000, up_to=2))
    assert [(record.timestamp, record.timestamp_type) for record in decode_records(whole)] == [(NOW, 1)] * 2
    assert offset_for_time(log, NOW, up_to=2) == (0, NOW, 2)


def test_deleting_records_moves_the_start():
    """Whole segments below it go, the rest of one stays unreadable; beyond the end is refused."""
    log = make(FOREVER)
    for _ in range(10):
        append(log, NOW)
    assert bases(log) == [0, 3, 6, 9]
    log.advance_start(4, NOW)
    assert (log.start_offset, bases(log)) == (4, [3, 6, 9])
    log.advance_start(2, NOW)
    assert log.start_offset == 4
    with pytest.raises(KafkaError) as caught:
        log.read(3, 100, up_to=10)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(KafkaError):
        log.advance_start(11, NOW)
    log.advance_start(10, NOW)
    assert (log.start_offset, log.end_offset, bases(log)) == (10, 10, [9])
    assert append(log, NOW) == 10


def test_a_fetch_inside_a_batch_gets_the_whole_batch():
    """Clients drop what they have; limits leave whole batches, but the first comes at any size (KIP-74)."""
    log = make(FOREVER)
    append(log, NOW, NOW, NOW, value=b"")
    append(log, NOW, NOW, value=b"")
    whole = log.read(0, 10_000, up_to=5)
    assert log.read(1, 10_000, up_to=5) == whole
    assert log.read(4, 10_000, up_to=5) == whole[-log._segments[0].batch_size(len(whole) // 2 + 4) :]
    first = log.read(2, 1, up_to=5)
    assert next(iter_batches(first))[0].last_offset == 2
    assert log.read(2, 1, up_to=5, min_one=False) == b""
    assert log.read(0, 10_000, up_to=3) == first
    assert log.read(5, 10_000, up_to=5) == b""
    with pytest.raises(KafkaError):
        log.read(6, 10_000, up_to=5)


def test_a_header_damaged_on_disk_is_never_served_as_an_empty_answer():
    """Bad length, format or offset: the reader gets an error, instead of waiting for ever behind it."""
    for position, content in ((8, b"\x7f\0\0\0"), (8, bytes(4)), (16, b"\1")):
        files = SimFiles()
        log = make(FOREVER, files)
        for _ in range(3):  # the newest batch is not looked for
            append(log, NOW)
        files.open(f"t-0/{0:020d}.log").content[position : position + len(content)] = content
        for offset in (0, 1):
            with pytest.raises(CorruptBatch):
                log.read(offset, 10_000, up_to=3)
        with pytest.raises(CorruptBatch):
            offset_for_time(log, NOW, up_to=3)


def test_the_newest_batch_is_found_without_a_look_at_the_files_until_it_is_cut():
    """Every follower reads it next; after a cut the position belongs to what is appended then."""
    files = SimFiles()
    log = make(FOREVER, files)
    for value in (b"a", b"a", b"newest"):
        append(log, NOW, value=value)
    segment = log._segments[0]
    start = segment.size - segment.batch_size(segment._positions.newest[1])
    assert segment._positions.newest == (2, start)
    log.cut(1, NOW)
    append(log, NOW, value=b"other")
    append(log, NOW, value=b"last")
    assert b"last" in log.read(2, 10_000, up_to=3)
    assert b"newest" not in log.read(1, 10_000, up_to=3)


def test_a_batch_that_has_lost_its_offset_is_told():
    """The checksum does not cover the base offset; an offset that no batch claims is damage, not the end of the log."""
    files = SimFiles()
    log = make(FOREVER, files)
    append(log, NOW)
    size = log.size_bytes
    append(log, NOW)
    log._segments[0]._positions.clear()  # the newest batch is not looked for otherwise
    files.open(f"t-0/{0:020d}.log").content[size + 7] = 0
    with pytest.raises(CorruptBatch, match="cannot be found"):
        log.read(1, 10_000, up_to=2)


def test_truncation_forgets_what_was_cut():
    """Segments, epochs, snapshots and producers are as if the rest had never been written, and a restart agrees."""
    files = SimFiles()
    log = make(FOREVER, files)
    for at in range(10):
        builder = BatchBuilder(producer_id=1, producer_epoch=0, base_sequence=at)
        builder.append(NOW, b"k", b"x" * 60)
        log.append(builder.build(), leader_epoch=at // 4, now_ms=NOW)
    flush(log)
    truncate(log, 5, NOW)
    assert (log.end_offset, log.flushed_offset, log.epochs.entries) == (5, 5, [(0, 0), (1, 4)])
    assert dict(log.producers.last_records()) == {1: (4, 0)}
    flush(log)
    again = PartitionLog(files, "t-0", FOREVER, now_ms=NOW, flushed=5)
    assert (again.end_offset, dict(again.producers.last_records()), again.epochs.entries) == (
        5,
        {1: (4, 0)},
        [(0, 0), (1, 4)],
    )


def test_a_new_leader_epoch_waits_for_no_disk():
    """Its checkpoint is written by the flush that proves its first batch with a snapshot, before that; until then a start learns the
    epoch from the batches."""
    files = SimFiles()
    log = make(FOREVER, files)
    path = "t-0/leader-epoch-checkpoint"
    before = files.syncs
    append(log, NOW)
    assert (files.syncs, log.wants_flush) == (before, False)
    flush(log)
    assert (files.syncs, files.read_bytes(path)) == (before + 1, None)
    files.cut_power(lambda limit: 0)
    log = PartitionLog(files, "t-0", FOREVER, now_ms=NOW, flushed=1)
    assert log.epochs.entries == [(2, 0)]
    log.roll(NOW)  # the epoch that only the batch names goes before the snapshot that proves the batch
    append(log, NOW, leader_epoch=3)
    point = log.flush_point()
    files.steps_left = 1
    with pytest.raises(PowerCut):
        point.sync()
    files.power_on()
    assert files.read_bytes(path) == b"0\n2\n2 0\n3 1\n"
    assert not [name for name in files.list("t-0") if name.endswith(".snapshot")]


def test_an_epoch_that_a_start_learnt_is_known_to_the_next_one():
    """A snapshot keeps the next start from reading the batches that tell of it."""
    files = SimFiles()
    log = make(FOREVER, files)
    append(log, NOW)
    log.roll(NOW)
    append(log, NOW, leader_epoch=3)
    flush(log)
    append(log, NOW, leader_epoch=4)
    flush(log)
    log = PartitionLog(files, "t-0", FOREVER, now_ms=NOW, flushed=3)
    log.roll(NOW)
    append(log, NOW, leader_epoch=4)
    flush(log)
    again = PartitionLog(files, "t-0", FOREVER, now_ms=NOW, flushed=4)
    assert (again.end_offset, again.epochs.entries) == (4, [(2, 0), (3, 1), (4, 2)])


def test_a_cut_is_told_where_it_took_an_epoch_along():
    """Nothing else says that records were written in it, and perhaps read."""
    files = SimFiles()
    log = make(FOREVER, files)
    append(log, NOW)
    size = log.active.size
    append(log, NOW, leader_epoch=3)
    flush(log)
    assert not PartitionLog(files, "t-0", FOREVER, now_ms=NOW).was_cut
    files.open("t-0/00000000000000000000.log").content[-1] ^= 1
    again = PartitionLog(files, "t-0", FOREVER, now_ms=NOW)
    assert (again.was_cut, again.active.size, again.epochs.latest) == (True, size, 2)


def test_a_flush_of_what_was_cut_off_says_nothing_of_what_came_after():
    """A sync that began before a truncation did not cover the batches that took the place of the lost ones."""
    log = make(FOREVER)
    for _ in range(10):
        append(log, NOW)
    flush(log)
    append(log, NOW)
    point = log.flush_point()
    truncate(log, 5, NOW)
    for _ in range(3):
        append(log, NOW)
    point.sync()
    log.flushed(point)
    assert (log.flushed_offset, log.end_offset) == (5, 8)
    flush(log)
    assert log.flushed_offset == 8


def test_a_snapshot_of_what_was_cut_off_is_not_written(monkeypatch):
    """It would prove to a start that offsets are on disk which were given to other records since."""
    monkeypatch.setattr(snapshots, "RECOVERY_BYTES_MAX", 1)
    files = SimFiles()
    log = make(FOREVER, files)
    for _ in range(10):
        append(log, NOW)
    point = log.flush_point()
    assert point.rolled
    assert point.snapshot is not None
    truncate(log, 2, NOW)
    point.sync()
    assert not [name for name in files.list("t-0") if name.endswith(".snapshot")]
    append(log, NOW)
    flush(log)
    assert f"{3:020d}.snapshot" in files.list("t-0")


def test_a_flush_between_a_failed_truncation_and_its_retry_proves_nothing_that_is_gone(monkeypatch):
    """The producers at the end of a deleted segment would prove to a start that its records were on disk."""
    files = SimFiles()
    log = make(FOREVER, files)
    for _ in range(10):
        append(log, NOW)
    assert len(bases(log)) > 3
    failures = [OSError(ENOSPC, "no space")]
    done = Segment.truncate

    def truncated(segment: Segment, offset: int) -> None:
        if failures:
            raise failures.pop()
        done(segment, offset)

    monkeypatch.setattr(Segment, "truncate", truncated)
    with pytest.raises(OSError, match="no space"):
        log.cut(2, NOW)
    flush(log)
    assert [name for name in files.list("t-0") if name.endswith(".snapshot") and int(name[:20]) > log.end_offset] == []
    truncate(log, 2, NOW)
    assert log.end_offset == 2


def test_a_truncation_reads_only_what_follows_the_last_snapshot():
    """The producers are those of the newest snapshot that is left, and of the batches behind it."""
    files = SimFiles()
    log = make(FOREVER, files)
    for number in range(12):
        builder = BatchBuilder(producer_id=number % 2, producer_epoch=0, base_sequence=number // 2)
        builder.append(NOW, b"k", b"x" * 60)
        log.append(builder.build(), leader_epoch=2, now_ms=NOW)
    flush(log)
    assert len(bases(log)) > 3
    files.open(f"t-0/{0:020d}.log").content[8:12] = bytes(4)  # a walk over the first segment fails
    truncate(log, 8, NOW + 5)
    for number in (8, 9):
        builder = BatchBuilder(producer_id=number % 2, producer_epoch=0, base_sequence=number // 2)
        builder.append(NOW, b"k", b"x" * 60)
        assert not log.append(builder.build(), leader_epoch=2, now_ms=NOW).duplicate
        assert log.append(builder.build(), leader_epoch=2, now_ms=NOW).duplicate
    assert dict(log.producers.last_records()) == {0: (8, 0), 1: (9, 0)}


def test_a_duplicate_is_told_the_time_that_was_stored():
    """On a LogAppendTime topic, as in the first answer."""
    log = make(LogConfig(message_timestamp_type="LogAppendTime"))
    builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0)
    builder.append(5, b"k", b"v")
    first = log.append(builder.build(), leader_epoch=2, now_ms=NOW)
    again = log.append(builder.build(), leader_epoch=2, now_ms=NOW + 1_000)
    assert (again.duplicate, again.log_append_time_ms) == (True, first.log_append_time_ms) == (True, NOW)


def test_no_segment_goes_one_record_early():
    """A start one below the next segment keeps the segment, and the record is read."""
    log = make(FOREVER)
    for _ in range(10):
        append(log, NOW)
    second = bases(log)[1]
    log.advance_start(second - 1, NOW)
    assert bases(log)[0] == 0
    assert log.read(second - 1, 1_000, up_to=10)
    log.advance_start(second, NOW)
    assert bases(log)[0] == second


def test_records_without_timestamps_grow_old_too():
    """By when they were written; a start does not know that any more, and counts from itself."""
    files = SimFiles()
    config = LogConfig(segment_bytes=400, retention_ms=1_000)
    log = make(config, files)
    for at in range(8):
        append(log, -1, now_ms=NOW + at * 500)
    flush(log)
    log.maintain(NOW + 2_001)
    assert bases(log)[0] == 3
    log.close(clean=True)
    again = PartitionLog(files, "t-0", config, now_ms=NOW + 9_000, clean=True)
    again.maintain(NOW + 10_000)
    assert bases(again)[0] == 3
    again.maintain(NOW + 10_001)
    assert again.has_deleted
    again.remove_deleted(NOW + 10_001)
    again.maintain(NOW + 10_001)
    flush(again)
    again.maintain(NOW + 10_001)
    assert again.start_offset == 8
