"""A log against power cuts, torn tails and flipped bits, on the simulated disk."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from busway_bus.kernel.limits import RECOVERY_BYTES_MAX
from busway_bus.log import snapshots
from busway_bus.log.log_config import LogConfig
from busway_bus.log.partition_log import CorruptLog, PartitionLog
from busway_bus.testing.sim_files import SimFiles
from busway_protocol.errors import KafkaError, ProtocolError
from busway_protocol.records.batch import iter_batches
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import decode_records

NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)


def batch(*values: bytes, sequence: int = -1) -> bytes:
    """One batch with these values."""
    identity = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence} if sequence >= 0 else {}
    builder = BatchBuilder(**identity)
    for value in values:
        builder.append(NOW, b"k", value)
    return builder.build()


def fresh() -> SimFiles:
    """A disk with one empty partition directory."""
    files = SimFiles()
    files.make_directory("t-0")
    return files


def open_log(files: SimFiles, **options) -> PartitionLog:
    """The log on that disk."""
    return PartitionLog(files, "t-0", options.pop("config", CONFIG), now_ms=NOW, **options)


def values(log: PartitionLog) -> list[bytes]:
    """Every value, read the way a consumer reads."""
    recovered, offset = [], log.start_offset
    while data := log.read(offset, 300, up_to=log.end_offset):
        for header, whole in iter_batches(data):
            recovered += [record.value for record in decode_records(whole)]
            offset = header.next_offset
    return recovered


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 10**6)),
        st.tuples(st.just("kill"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=40,
)


@pytest.fixture(params=[RECOVERY_BYTES_MAX, 150], ids=["snapshots-at-rolls", "snapshots-between"])
def recovery_bytes(request, monkeypatch):
    """How much is appended between two snapshots: never so much in these histories, or every other batch."""
    monkeypatch.setattr(snapshots, "RECOVERY_BYTES_MAX", request.param)


@pytest.mark.slow
@pytest.mark.usefixtures("recovery_bytes")
@given(ACTIONS)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_what_was_flushed_survives_every_crash(actions):
    """After any history of appends, flushes, kills and power cuts the log is a prefix that holds all that was flushed."""
    files, written, flushed = fresh(), [], 0
    log = open_log(files)
    for action, number in actions:
        if action == "append":
            more = [b"%d" % (len(written) + at) for at in range(number)]
            log.append(batch(*more), leader_epoch=0, now_ms=NOW)
            written += more
        elif action == "flush":
            point = log.flush_point()
            point.sync()
            log.flushed(point)
            flushed = log.flushed_offset
        elif action == "restart":
            log.close(clean=True)
            log = open_log(files, clean=True, flushed=flushed)
        else:
            if action == "cut":
                files.cut_power(lambda limit, number=number: number % limit)
            log = open_log(files, flushed=flushed)
        survived = values(log)
        assert log.end_offset >= flushed
        assert survived == written[: len(survived)]
        assert len(survived) == log.end_offset
        written, flushed = survived, max(flushed, log.flushed_offset)


def test_what_a_killed_process_left_is_on_disk_after_the_restart():
    """A retried batch may be acknowledged as a duplicate, so recovery syncs what it finds."""
    files = fresh()
    open_log(files).append(batch(b"a", sequence=0), leader_epoch=0, now_ms=NOW)
    again = open_log(files)
    assert again.append(batch(b"a", sequence=0), leader_epoch=0, now_ms=NOW).duplicate
    files.cut_power(lambda limit: 0)
    assert values(open_log(files)) == [b"a"]


def test_every_flipped_bit_is_found():
    """One bit anywhere in a flushed segment is reported, or lies in a field outside the checksum that changes no record."""
    files = fresh()
    log = open_log(files, config=LogConfig())
    for at in range(3):
        log.append(batch(b"value %d" % at), leader_epoch=0, now_ms=NOW)
    whole = bytes(files.open("t-0/00000000000000000000.log").content)
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        disk = fresh()
        disk.open("t-0/00000000000000000000.log").append([damaged])
        try:
            read_values = values(open_log(disk, config=LogConfig(), flushed=3))
        except (CorruptLog, KafkaError, ProtocolError):
            continue
        assert read_values == [b"value 0", b"value 1", b"value 2"], f"bit {bit}"


def test_a_torn_tail_is_cut_and_a_hole_is_not():
    """Cut off at every byte the log keeps its whole batches; below the recovery point it refuses, naming the file."""
    files = fresh()
    log = open_log(files, config=LogConfig())
    sizes = [0]
    for at in range(3):
        log.append(batch(b"%d" % at), leader_epoch=0, now_ms=NOW)
        sizes.append(log.size_bytes)
    whole = bytes(files.open("t-0/00000000000000000000.log").content)
    for cut in range(len(whole)):
        disk = fresh()
        disk.open("t-0/00000000000000000000.log").append([whole[:cut]])
        assert open_log(disk, config=LogConfig()).end_offset == sum(size <= cut for size in sizes[1:])
        disk = fresh()
        disk.open("t-0/00000000000000000000.log").append([whole[:cut]])
        with pytest.raises(CorruptLog, match=r"0\.log"):
            open_log(disk, config=LogConfig(), flushed=3)


def test_damage_in_an_older_segment_that_was_flushed_is_never_a_torn_tail():
    """The snapshot of a roll says that everything before it was flushed, also where the checkpoint lags behind."""
    files = fresh()
    log = open_log(files)
    while len(log._segments) < 3:
        log.append(batch(b"x" * 50), leader_epoch=0, now_ms=NOW)
    log.flush_point().sync()
    files.open("t-0/00000000000000000000.log").truncate(400)
    with pytest.raises(CorruptLog, match="was flushed up to"):
        open_log(files)


def test_an_older_segment_that_was_never_flushed_may_be_torn():
    """What follows a torn segment is dropped with its end: none of it was acknowledged."""
    files = fresh()
    log = open_log(files)
    while len(log._segments) < 3:
        log.append(batch(b"x" * 50), leader_epoch=0, now_ms=NOW)
    files.open("t-0/00000000000000000000.log").truncate(400)
    again = open_log(files)
    assert (again.start_offset, again.end_offset) == (0, 3)
    assert [name for name in files.list("t-0") if name.endswith(".log")] == ["00000000000000000000.log"]
    assert len([name for name in files.list("t-0") if name.endswith(".log.0000000000.cut")]) == 2


def test_what_a_start_cuts_off_is_told_and_kept_aside(caplog):
    """A flipped bit in what was acknowledged after the last checkpoint looks like a torn end: the bytes behind it must not vanish."""
    files = fresh()
    log = open_log(files, config=LogConfig())
    for at in range(6):
        log.append(batch(b"%d" % at), leader_epoch=0, now_ms=NOW)
    name = "00000000000000000000.log"
    whole = files.read_bytes(f"t-0/{name}")
    size = len(whole) // 6
    files.open(f"t-0/{name}").content[2 * size + 65] ^= 1
    again = open_log(files, config=LogConfig())
    assert again.end_offset == 2
    kept = f"{name}.{2 * size:010d}.cut"
    cut = bytearray(files.read_bytes(f"t-0/{kept}"))
    cut[65] ^= 1
    assert files.read_bytes(f"t-0/{name}") + cut == whole
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"t-0/{name} is truncated at byte {2 * size}, behind offset 1: the checksum" in line
    assert f"{4 * size} bytes" in line
    assert kept in line
    caplog.clear()
    assert open_log(files, config=LogConfig()).end_offset == 2
    assert not caplog.records
    files.cut_power(lambda limit: 0)
    assert len(files.read_bytes(f"t-0/{kept}")) == 4 * size


def test_the_newest_cuts_are_kept():
    """A broker that is killed for ever must not fill the disk: four of earlier starts, and all of the last one."""
    files = fresh()
    log = open_log(files, config=LogConfig())
    for at in range(8):
        log.append(batch(b"%d" % at), leader_epoch=0, now_ms=NOW)
        files.open("t-0/00000000000000000000.log").append([b"torn"])
        log = open_log(files, config=LogConfig())
    assert log.end_offset == 8
    cuts = [name for name in files.list("t-0") if name.endswith(".cut")]
    assert len(cuts) == 5
    assert cuts[-1] == f"00000000000000000000.log.{log.size_bytes:010d}.cut"


def test_a_log_whose_checkpoints_are_lost_is_not_removed(caplog):
    """Segments that begin behind offset 0 while nothing says what was before them are kept aside, and it is logged."""
    files = fresh()
    log = open_log(files)
    while len(log._segments) < 3:
        log.append(batch(b"x" * 50), leader_epoch=0, now_ms=NOW)
    before = {name: files.read_bytes(f"t-0/{name}") for name in files.list("t-0") if name.endswith(".log")}
    files.remove(f"t-0/{min(before)}")
    assert open_log(files).end_offset == 0
    for name in sorted(before)[1:]:
        assert files.read_bytes(f"t-0/{name}.0000000000.cut") == before[name]
        assert f"t-0/{name} is not served any more" in caplog.text
