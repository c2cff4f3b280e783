"""Compaction against a model, through crashes, and its rules one by one."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.busway_bus.log.transactional import truncate

from busway_bus.log.cleaner import Cleaner, cleanable
from busway_bus.log.compaction import KeyOffsets, Plan, due, groups, horizon, plan
from busway_bus.log.log_config import LogConfig
from busway_bus.log.partition_log import PartitionLog
from busway_bus.testing.sim_files import PowerCut, SimFiles
from busway_protocol.errors import KafkaError, ProtocolError
from busway_protocol.records.batch import iter_batches, read_header, verify_crc
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import Record, decode_records

NOW = 1_700_000_000_000
DAY = 86_400_000
CONFIG = LogConfig(cleanup_policy=("compact",), segment_bytes=400, index_interval_bytes=100)


def fresh(config: LogConfig = CONFIG) -> tuple[SimFiles, PartitionLog]:
    """An empty compacted log on its own disk."""
    files = SimFiles()
    files.make_directory("t-0")
    return files, PartitionLog(files, "t-0", config, now_ms=NOW)


def append(log: PartitionLog, *pairs: tuple[bytes, bytes | None], codec: str = "none", **identity: int) -> None:
    """Append one batch."""
    builder = BatchBuilder(codec, **identity)
    for key, value in pairs:
        builder.append(NOW, key, value, [("h", b"x")])
    log.append(builder.build(), leader_epoch=0, now_ms=NOW)


def flush(log: PartitionLog) -> None:
    """Put everything on disk."""
    point = log.flush_point()
    point.sync()
    log.flushed(point)


def clean(log: PartitionLog, *, cleaned: int = 0, now_ms: int = NOW, keys_max: int = 1000) -> int:
    """Clean whatever can be cleaned; answers the new end of the clean part."""
    planned = plan(log.closed_segments(), cleaned=cleaned, config=log.config, now_ms=now_ms)
    if planned is None:
        return cleaned
    cleaner = Cleaner(log, planned, now_ms=now_ms, keys_max=keys_max)
    for _ in cleaner.map_keys():
        pass
    for group in cleaner.groups():
        for _ in cleaner.write(group):
            pass
        if cleaner.prepare():
            assert cleaner.put_in_place(group, now_ms)
            cleaner.settle(now_ms)
    return cleaner.end


def records(log: PartitionLog) -> list[Record]:
    """Every record, read the way a consumer reads, with checksums."""
    decoded, offset = [], log.start_offset
    while data := log.read(offset, 300, up_to=log.end_offset):
        for header, whole in iter_batches(data):
            verify_crc(whole, header)
            assert header.next_offset > offset
            decoded += [record for record in decode_records(whole) if record.offset >= offset]
            offset = header.next_offset
    assert offset == log.end_offset
    return decoded


def pairs(log: PartitionLog) -> list[tuple[bytes, bytes | None]]:
    """Keys and values."""
    return [(record.key, record.value) for record in records(log)]


KEYS = st.sampled_from([b"a", b"b", b"c", b"", b"a key of more than sixteen bytes", b"another of more than sixteen"])
BATCH = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=30)), min_size=1, max_size=5)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), BATCH),
        st.tuples(st.just("append"), BATCH),
        st.tuples(st.just("append"), BATCH),
        st.tuples(st.just("clean"), st.integers(1, 8)),
        st.tuples(st.just("age"), st.just(0)),
        st.tuples(st.just("restart"), st.booleans()),
        st.tuples(st.just("crash"), st.integers(0, 40)),
    ),
    max_size=30,
)


@pytest.mark.slow
@given(ACTIONS, st.sampled_from(["none", "gzip", "zstd"]))
@settings(max_examples=200)
def test_the_last_value_of_each_key_survives_at_its_offset(actions, codec):
    """After any history of appends, cleanings, crashes within them and restarts a reader sees a subsequence of what was
    written, at the offsets where it was written, with the last record of every key but tombstones past their horizon."""
    files, log = fresh()
    written: list[tuple[bytes, bytes | None]] = []
    cleaned, now = 0, NOW
    for action, what in actions:
        if action == "append":
            append(log, *what, codec=codec)
            written += what
            flush(log)
        elif action == "clean":
            log.roll(now)
            flush(log)
            cleaned = clean(log, cleaned=cleaned, now_ms=now, keys_max=what)
        elif action == "age":
            now += DAY + 1
        elif action == "restart":
            log.close(clean=what)
            log = PartitionLog(files, "t-0", CONFIG, now_ms=now, flushed=len(written), cleaned=cleaned, clean=what)
        else:
            log.roll(now)
            flush(log)
            files.steps_left = what
            with contextlib.suppress(PowerCut):
                clean(log, cleaned=cleaned, now_ms=now)
            files.cut_power(lambda limit: 0)
            log = PartitionLog(files, "t-0", CONFIG, now_ms=now, flushed=len(written), cleaned=cleaned)
        left = {record.offset: (record.key, record.value) for record in records(log)}
        assert log.end_offset == len(written)
        assert all(written[offset] == pair for offset, pair in left.items())
        last = {key: offset for offset, (key, _) in enumerate(written)}
        for key, offset in last.items():
            if offset not in left:
                assert written[offset][1] is None
                assert key not in {key for key, _ in left.values()}, "a deleted key has come back"
        if cleaned:
            behind = [key for offset, (key, _) in left.items() if offset < cleaned and offset != last[key]]
            assert action not in {"clean"} or not [key for key in behind if last[key] < cleaned]


def test_offsets_headers_and_timestamps_of_what_stays_are_unchanged():
    """A batch keeps base and last offset when it loses records; a compressed one stays compressed."""
    _, log = fresh()
    append(log, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"), codec="gzip")
    append(log, (b"a", b"4"), (b"c", b"5"))
    log.roll(NOW)
    flush(log)
    assert clean(log) == 5
    data = log.read(0, 10_000, up_to=5)
    (first, whole), (second, _) = iter_batches(data)
    assert (first.base_offset, first.last_offset, first.records_count, first.compression) == (0, 2, 1, 1)
    assert decode_records(whole) == [Record(1, NOW, 0, b"b", b"2", (("h", b"x"),))]
    assert (second.base_offset, second.last_offset, second.records_count) == (3, 4, 2)
    assert pairs(log) == [(b"b", b"2"), (b"a", b"4"), (b"c", b"5")]


def test_the_active_segment_is_never_cleaned():
    """What was written last stays as it is, also where its keys repeat."""
    _, log = fresh()
    append(log, (b"a", b"1"))
    append(log, (b"a", b"2"))
    flush(log)
    assert clean(log) == 0
    assert pairs(log) == [(b"a", b"1"), (b"a", b"2")]


def test_only_flushed_segments_are_cleaned():
    """Nothing may be dropped for the sake of a record that a power cut could still take away."""
    _, log = fresh()
    append(log, (b"a", b"1"))
    log.roll(NOW)
    assert log.closed_segments() == ()
    flush(log)
    assert len(log.closed_segments()) == 1


def test_a_tombstone_stays_until_the_horizon_that_the_first_cleaning_sets():
    """The value goes at once; the tombstone after delete.retention.ms, counted from the cleaning (KIP-534)."""
    _, log = fresh()
    append(log, (b"a", b"1"), (b"a", None), (b"b", b"2"))
    log.roll(NOW)
    flush(log)
    clean(log)
    assert pairs(log) == [(b"a", None), (b"b", b"2")]
    header = read_header(log.read(0, 10_000, up_to=3))
    assert horizon(header) == NOW + CONFIG.delete_retention_ms
    assert [record.timestamp for record in records(log)] == [NOW, NOW]
    for moment, expected in (
        (NOW + DAY - 1, [(b"a", None), (b"b", b"2"), (b"c", b"0")]),
        (NOW + DAY, [(b"b", b"2"), (b"c", b"1")]),
    ):
        append(log, (b"c", b"0" if moment < NOW + DAY else b"1"))
        log.roll(NOW)
        flush(log)
        clean(log, cleaned=log.closed_segments()[-1].base_offset, now_ms=moment)
        assert pairs(log) == expected


def test_the_last_batch_of_a_producer_keeps_its_header():
    """A producer's next sequence is known after a restart, although nothing is left of what it wrote."""
    files, log = fresh()
    append(log, (b"a", b"1"), producer_id=5, producer_epoch=2, base_sequence=0)
    append(log, (b"a", b"2"), producer_id=5, producer_epoch=2, base_sequence=1)
    append(log, (b"a", b"3"))
    append(log, (b"b", b"3"))
    log.roll(NOW)
    flush(log)
    clean(log)
    kept = [header for header, _ in iter_batches(log.read(0, 10_000, up_to=4))]
    assert [(header.base_offset, header.records_count, header.producer_id) for header in kept] == [
        (1, 0, 5),
        (2, 1, -1),
        (3, 1, -1),
    ]
    for name in files.list("t-0"):
        if name.endswith(".snapshot"):
            files.remove(f"t-0/{name}")
    again = PartitionLog(files, "t-0", CONFIG, now_ms=NOW, flushed=4, cleaned=4)
    builder = BatchBuilder(producer_id=5, producer_epoch=2, base_sequence=7)
    builder.append(NOW, b"a", b"1")
    with pytest.raises(KafkaError, match="2 is next"):
        again.append(builder.build(), leader_epoch=0, now_ms=NOW)


def test_compaction_and_deletion_go_together():
    """With compact,delete old segments go by retention and the rest is compacted."""
    files, log = fresh(LogConfig(cleanup_policy=("compact", "delete"), segment_bytes=400, retention_ms=DAY))
    for number in range(20):
        builder = BatchBuilder()
        for key in (b"a", b"b"):
            builder.append(NOW + number, key, b"%d" % number * 10)
        log.append(builder.build(), leader_epoch=0, now_ms=NOW)
    log.roll(NOW)
    flush(log)
    log.maintain(NOW + DAY + 10)
    assert 0 < log.start_offset < 20
    cleaned = clean(log, now_ms=NOW + DAY + 10)
    assert pairs(log) == [(b"a", b"19" * 10), (b"b", b"19" * 10)]
    log.maintain(NOW + DAY + 20)
    assert (log.start_offset, pairs(log)) == (40, [])
    log.remove_deleted(NOW + DAY + 20)
    again = PartitionLog(files, "t-0", log.config, now_ms=NOW, flushed=40, cleaned=cleaned)
    assert (again.start_offset, again.end_offset) == (40, 40)


def test_small_segments_are_merged():
    """Cleaned segments are put together up to segment.bytes; old files go after file.delete.delay.ms."""
    files, log = fresh()
    for number in range(40):
        append(log, (b"a", b"%d" % number))
    log.roll(NOW)
    flush(log)
    assert len(log.closed_segments()) > 5
    clean(log)
    before = len(log.closed_segments())
    clean(log, cleaned=log.closed_segments()[-1].base_offset)
    assert len(log.closed_segments()) < before
    assert pairs(log) == [(b"a", b"39")]
    log.remove_deleted(NOW + CONFIG.file_delete_delay_ms)
    assert not [name for name in files.list("t-0") if not name.endswith(("log", "index", "snapshot", "checkpoint"))]


def test_a_key_of_null_has_no_place():
    """Records without a key, from before the topic was compacted, go."""
    _, log = fresh(LogConfig(segment_bytes=400))
    append(log, (None, b"1"), (b"a", b"2"))
    log.roll(NOW)
    flush(log)
    log.config = CONFIG
    clean(log)
    assert pairs(log) == [(b"a", b"2")]


def test_a_full_map_cleans_what_it_knows_and_goes_on_next_time():
    """With room for two keys a round ends before the third; the next begins there."""
    _, log = fresh()
    for key in (b"a", b"b", b"a", b"c", b"b", b"d"):
        append(log, (key, b"v"))
    log.roll(NOW)
    flush(log)
    assert clean(log, keys_max=2) == 3
    assert [record.offset for record in records(log)] == [1, 2, 3, 4, 5]
    assert clean(log, cleaned=3, keys_max=2) == 5
    assert clean(log, cleaned=5, keys_max=2) == 6
    assert [record.offset for record in records(log)] == [2, 3, 4, 5]


def test_a_tombstone_outlives_the_values_before_it_however_small_the_map():
    """One that the map has no room for stays past its horizon, until a round knows that the value is gone."""
    _, log = fresh(LogConfig(cleanup_policy=("compact",)))
    append(log, (b"x", b"1"), (b"y", b"1"), (b"a", b"1"), (b"b", b"1"))
    append(log, (b"a", None))
    log.roll(NOW)
    flush(log)
    cleaned = 0
    for day in range(6):
        cleaned = clean(log, cleaned=cleaned, now_ms=NOW + day * (DAY + 1), keys_max=1)
        assert (b"a", b"1") not in pairs(log) or (b"a", None) in pairs(log)
    assert cleaned == 5
    assert pairs(log) == [(b"x", b"1"), (b"y", b"1"), (b"b", b"1")]


def test_a_cleaning_of_segments_that_were_truncated_is_dropped():
    """What a follower cut off must not come back with the cleaned segment."""
    for cut in (2, 8):
        _, log = fresh()
        for number in range(10):
            append(log, (b"%d" % number, b"v" * 20), (b"a", b"%d" % number))
        flush(log)
        cleaner = Cleaner(log, plan(log.closed_segments(), cleaned=0, config=CONFIG, now_ms=NOW), now_ms=NOW)
        list(cleaner.map_keys())
        group = cleaner.groups()[0] if cut == 2 else log.closed_segments()[:3]
        list(cleaner.write(group))
        assert cleaner.prepare()
        truncate(log, cut, NOW)
        assert not cleaner.put_in_place(group, NOW)
        cleaner.abandon()


def test_a_cleaning_whose_segments_were_deleted_meanwhile_is_dropped():
    """Retention may take a segment that is being cleaned; the log goes on without either."""
    files, log = fresh()
    for number in range(10):
        append(log, (b"%d" % number, b"v" * 20), (b"a", b"%d" % number))
    flush(log)
    planned = plan(log.closed_segments(), cleaned=0, config=CONFIG, now_ms=NOW)
    cleaner = Cleaner(log, planned, now_ms=NOW)
    list(cleaner.map_keys())
    group = cleaner.groups()[0]
    list(cleaner.write(group))
    assert cleaner.prepare()
    log.advance_start(log.closed_segments()[1].base_offset, NOW)
    assert not cleaner.put_in_place(group, NOW)
    cleaner.abandon()
    assert not [name for name in files.list("t-0") if name.endswith((".swap", ".cleaned"))]
    assert records(log)[0].offset == log.start_offset


def test_a_base_offset_that_is_damaged_meanwhile_is_told():
    """No checksum covers it: whichever of its bits is wrong, the segment stays as it is."""
    for bit in range(64):
        _, log = fresh()
        for number in range(10):
            append(log, (b"%d" % number, b"v" * 20), (b"a", b"%d" % number))
        flush(log)
        damaged = log._segments[1]
        *_, (_, position) = damaged.headers()
        damaged._log.content[position + 7 - bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProtocolError):
            clean(log)
        assert damaged in log._segments


def test_when_a_log_is_due():
    """Enough dirty, or dirty too long; nothing younger than min.compaction.lag.ms."""
    _, log = fresh()
    for number in range(30):
        append(log, (b"a", b"%d" % number))
    flush(log)
    segments = log.closed_segments()
    whole = plan(segments, cleaned=0, config=CONFIG, now_ms=NOW)
    assert whole == Plan(first_dirty=0, end=segments[-1].next_offset, ratio=1.0)
    assert plan(segments, cleaned=segments[-1].next_offset, config=CONFIG, now_ms=NOW) is None
    planned = plan(segments, cleaned=segments[-1].base_offset, config=CONFIG, now_ms=NOW)
    assert 0 < planned.ratio < 0.5
    assert not due(planned, CONFIG, oldest_ms=NOW, now_ms=NOW + 10**12)
    hurried = LogConfig(cleanup_policy=("compact",), max_compaction_lag_ms=1000)
    assert due(planned, hurried, oldest_ms=NOW, now_ms=NOW + 1001)
    assert not due(planned, hurried, oldest_ms=NOW, now_ms=NOW + 1000)
    lagging = LogConfig(cleanup_policy=("compact",), min_compaction_lag_ms=1000)
    assert plan(segments, cleaned=0, config=lagging, now_ms=NOW + 999) is None
    assert plan(segments, cleaned=0, config=lagging, now_ms=NOW + 1000) == whole
    assert cleanable(log, cleaned=0, now_ms=NOW) == whole
    assert cleanable(log, cleaned=segments[-1].base_offset, now_ms=NOW) is None
    log.config = hurried
    assert cleanable(log, cleaned=segments[-1].base_offset, now_ms=NOW + 1001) == planned


def test_groups_keep_to_the_sizes():
    """A group holds at most segment.bytes and offsets that fit four bytes."""

    class Segment:
        def __init__(self, base_offset, next_offset, size):
            self.base_offset, self.next_offset, self.size, self.max_timestamp = base_offset, next_offset, size, -1

    config = LogConfig(segment_bytes=100)
    assert groups([], config) == []
    assert groups([Segment(0, 1, 60), Segment(1, 2, 40), Segment(2, 3, 1), Segment(3, 4, 200)], config) == [
        (0, 2),
        (2, 3),
        (3, 4),
    ]
    assert groups([Segment(0, 5, 1), Segment(5, 2**31, 1)], config) == [(0, 1), (1, 2)]


def test_a_long_key_is_not_taken_for_another():
    """Keys of every length around that of a digest keep their own offsets."""
    _, log = fresh(LogConfig(cleanup_policy=("compact",)))
    keys = [b"x" * length for length in range(40)]
    for value in (b"1", b"2"):
        append(log, *[(key, value) for key in keys])
    log.roll(NOW)
    flush(log)
    clean(log)
    assert pairs(log) == [(key, b"2") for key in keys]
    assert len(KeyOffsets(0)) == 0
