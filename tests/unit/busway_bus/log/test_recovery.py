"""What a start reads after an unclean stop, and what it makes of missing files, wrong indexes and half-done deletions."""

import contextlib
import dataclasses

import pytest

from busway_bus.log import snapshots
from busway_bus.log.file_slice import ColdPages
from busway_bus.log.log_config import LogConfig
from busway_bus.log.partition_log import CorruptLog, PartitionLog
from busway_bus.testing.sim_files import PowerCut, SimFiles
from busway_protocol.errors import KafkaError
from busway_protocol.records.batch import CorruptBatch, iter_batches
from busway_protocol.records.builder import BatchBuilder

NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=200)


class WatchedFiles(SimFiles):
    """A disk that counts the bytes read from each log file since `read` was cleared."""

    def __init__(self):
        super().__init__()
        self.read = {}

    def open(self, path):
        return Watched(super().open(path), path, self.read)


class Watched:
    """One file of it."""

    def __init__(self, file, path, read):
        self._file, self._path, self._read = file, path, read

    def read(self, position, size):
        data = self._file.read(position, size)
        self._read[self._path] = self._read.get(self._path, 0) + len(data)
        return data

    def __getattr__(self, name):
        return getattr(self._file, name)


def batch(number: int, *, producer: int = 7, timestamp: int | None = None) -> bytes:
    """A batch of about 100 bytes, the number-th of its producer."""
    builder = BatchBuilder(producer_id=producer, producer_epoch=0, base_sequence=number)
    builder.append(NOW + number if timestamp is None else timestamp, b"k", b"%030d" % number)
    return builder.build()


def filled(files: SimFiles, count: int = 100, *, config: LogConfig = CONFIG) -> PartitionLog:
    """A log of `count` batches in several segments, flushed."""
    files.make_directory("t-0")
    log = PartitionLog(files, "t-0", config, now_ms=NOW)
    for number in range(count):
        log.append(batch(number), leader_epoch=3, now_ms=NOW)
    point = log.flush_point()
    point.sync()
    log.flushed(point)
    return log


def reopen(files: SimFiles, *, config: LogConfig = CONFIG, **options) -> PartitionLog:
    """The log after a crash, or a clean stop."""
    return PartitionLog(files, "t-0", config, now_ms=NOW, **options)


def bases(log: PartitionLog) -> list[int]:
    """Where the segments begin."""
    return [segment.base_offset for segment in log._segments]


def entries(files: SimFiles, log: PartitionLog) -> list[tuple[bytes, bytes, int]]:
    """Everything that the indexes say."""
    return [
        (
            files.read_bytes(segment.path(".index")),
            files.read_bytes(segment.path(".timeindex")),
            segment.max_timestamp,
        )
        for segment in log._segments
    ]


def test_after_a_crash_only_what_lies_behind_the_recovery_point_is_read():
    """Of older segments no more is read than lies behind the last index entry; the state is the same as before."""
    files = WatchedFiles()
    before = filled(files)
    sizes = {segment.path(".log"): segment.size for segment in before._segments}
    files.read.clear()
    after = reopen(files, flushed=100)
    newest = list(sizes)[-1]
    for path, size in sizes.items():
        if path != newest:
            assert files.read.get(path, 0) <= size // 3, path
    assert files.read[newest] >= sizes[newest]
    assert (after.end_offset, after.epochs.entries, bases(after)) == (100, [(3, 0)], bases(before))
    assert after.producers.snapshot() == before.producers.snapshot()
    with pytest.raises(KafkaError):
        after.append(batch(3), leader_epoch=3, now_ms=NOW)
    assert after.append(batch(99), leader_epoch=3, now_ms=NOW).duplicate


def test_after_a_clean_stop_no_batch_is_read_but_those_at_the_end():
    """However many segments there are: nothing of the closed ones, and of the last one what follows its last index entry."""
    files = WatchedFiles()
    before = filled(files)
    sizes = {segment.path(".log"): segment.size for segment in before._segments}
    before.close(clean=True)
    files.read.clear()
    after = reopen(files, flushed=100, clean=True)
    newest = list(sizes)[-1]
    assert set(files.read) <= {newest, newest.replace(".log", ".index"), newest.replace(".log", ".timeindex")}
    assert files.read[newest] <= 3 * sizes[newest]
    assert (after.end_offset, bases(after)) == (100, bases(before))
    assert after.producers.snapshot() == before.producers.snapshot()
    for offset in range(100):
        assert next(iter_batches(after.read(offset, 1, up_to=100)))[0].base_offset == offset


def test_what_was_put_off_is_looked_at_by_whoever_reads_first():
    """Damage of a closed segment is reported then, again and again; segments without damage are read."""
    for damage in ("cut", "gone"):
        files = SimFiles()
        log = filled(files)
        second, third = log._segments[1:3]
        log.close(clean=True)
        if damage == "cut":
            files.open(second.path(".log")).truncate(second.size - 10)
        else:
            files.remove(second.path(".log"))
        after = reopen(files, flushed=100, clean=True)
        for _ in range(2):
            with pytest.raises(CorruptBatch, match=r"\.log ends before offset"):
                after.read(third.base_offset - 1, 1, up_to=100)
        header, _ = next(iter_batches(after.read(third.base_offset, 1, up_to=100)))
        assert header.base_offset == third.base_offset


def test_a_bad_index_is_made_anew_beside_the_event_loop():
    """A caller that must not wait gets an error; when it was waited for, the same question is answered."""
    files = SimFiles()
    log = filled(files)
    second = log._segments[1]
    log.close(clean=True)
    path = second.path(".index")
    content = files.read_bytes(path)
    files.open(path).truncate(0)
    files.open(path).append([content[: len(content) // 16 * 8]])
    after = reopen(files, flushed=100, clean=True)
    with pytest.raises(ColdPages) as cold:
        after.slice(second.base_offset + 3, 1, up_to=100, wait=False)
    cold.value.warm()
    assert files.read_bytes(path) == content
    after.slice(second.base_offset + 3, 1, up_to=100, wait=False)


def test_a_base_offset_that_no_index_can_hold_is_damage():
    """No checksum covers it, and in a compacted log a gap is none: the reader of a closed segment gets an error, each with its own exception."""
    config = dataclasses.replace(CONFIG, cleanup_policy=frozenset({"compact"}))
    for number in (1, -1):
        files = SimFiles()
        log = filled(files, config=config)
        damaged, following = log._segments[number], log._segments[2]
        _, position = damaged.indexes.last_batch()
        log.close(clean=True)
        files.open(damaged.path(".log")).content[position] ^= 0x40
        if number == -1:
            with pytest.raises(CorruptLog, match="has offsets"):
                reopen(files, config=config, flushed=100, clean=True)
            continue
        with pytest.raises(CorruptLog, match="has offsets"):
            reopen(files, config=config, flushed=0)
        after = reopen(files, config=config, flushed=100, clean=True)
        with pytest.raises(ColdPages) as cold:
            after.slice(damaged.base_offset, 1, up_to=100, wait=False)
        with pytest.raises(CorruptBatch, match="has offsets") as first:
            cold.value.warm()
        with pytest.raises(CorruptBatch, match="has offsets") as second:
            after.slice(damaged.base_offset, 1, up_to=100, wait=False)
        assert first.value is not second.value
        after.slice(following.base_offset, 1, up_to=100, wait=False)


@pytest.mark.parametrize("ending", ["closed", "removed", "full"])
def test_a_look_that_the_disk_ends_is_had_again(ending):
    """The topic is deleted or the disk is full while a closed segment is read off the loop: an OSError, and nothing is known of its end."""
    files = SimFiles()
    log = filled(files)
    second, third = log._segments[1:3]
    log.close(clean=True)
    files.open(second.path(".index")).truncate(8)
    after = reopen(files, flushed=100, clean=True)
    with pytest.raises(ColdPages) as cold:
        after.slice(second.base_offset, 1, up_to=100, wait=False)
    assert after._segments[1].next_offset == third.base_offset
    if ending == "closed":
        after.close(clean=False)
    elif ending == "removed":
        after._segments[1].delete()
    else:
        files.faults.capacity = files.used()
    with pytest.raises(OSError, match="space" if ending == "full" else "closed"):
        cold.value.warm()
    assert after._segments[1].next_offset == third.base_offset
    if ending == "full":
        files.faults.capacity = None
        cold.value.warm()
        after.slice(second.base_offset, 1, up_to=100, wait=False)


def test_of_a_large_segment_only_what_follows_the_last_snapshot_is_read(monkeypatch):
    """There is one for every so many bytes, with the indexes on disk before it; the one before it is removed then."""
    monkeypatch.setattr(snapshots, "RECOVERY_BYTES_MAX", 5_000)
    files = WatchedFiles()
    files.make_directory("t-0")
    log = PartitionLog(files, "t-0", LogConfig(index_interval_bytes=200), now_ms=NOW)
    written = set()
    for number in range(500):
        log.append(batch(number), leader_epoch=3, now_ms=NOW)
        point = log.flush_point()
        point.sync()
        log.flushed(point)
        names = [name for name in files.list("t-0") if name.endswith(".snapshot")]
        assert len(names) <= 1
        written |= {*names}
    assert len(written) == log.size_bytes // 5_000
    before = entries(files, log)
    files.cut_power(lambda limit: 0)
    files.read.clear()
    after = PartitionLog(files, "t-0", LogConfig(index_interval_bytes=200), now_ms=NOW, flushed=500)
    assert files.read[after.active.path(".log")] < 40_000 < log.size_bytes
    assert (after.end_offset, entries(files, after)) == (500, before)
    assert after.producers.snapshot() == log.producers.snapshot()
    after.append(batch(500), leader_epoch=3, now_ms=NOW)


def test_a_log_that_rests_gets_a_snapshot(monkeypatch):
    """What was appended since the last one would be read by every start after a kill."""
    monkeypatch.setattr(snapshots, "RECOVERY_BYTES_SETTLED", 600)
    files = SimFiles()
    log = filled(files, 5)
    log.maintain(NOW)
    assert not log.wants_flush
    for number in range(5, 10):
        log.append(batch(number), leader_epoch=3, now_ms=NOW)
    log.maintain(NOW)
    assert log.wants_flush
    point = log.flush_point()
    point.sync()
    log.flushed(point)
    assert not log.wants_flush
    assert f"{10:020d}.snapshot" in files.list("t-0")


@pytest.mark.parametrize("flushed", [0, 30, 100], ids=["no-checkpoint", "old-checkpoint", "checkpoint"])
def test_what_is_found_does_not_depend_on_the_checkpoint(flushed):
    """With an older recovery point more is read, the outcome is the same."""
    files = SimFiles()
    before = filled(files)
    indexed = entries(files, before)
    after = reopen(files, flushed=flushed)
    assert (after.start_offset, after.end_offset, bases(after)) == (0, 100, bases(before))
    assert entries(files, after)[:-1] == indexed[:-1]


DAMAGE = {
    "missing": lambda content: b"",
    "cut-in-an-entry": lambda content: content[:-3],
    "half": lambda content: content[: len(content) // 24 * 12],
    "zeroed-tail": lambda content: content[:-12] + bytes(12),
    "zeroed": lambda content: bytes(len(content)),
    "reversed": lambda content: content[::-1],
    "one-less": lambda content: content[:-8] + (int.from_bytes(content[-8:-4]) - 1).to_bytes(4) + content[-4:],
    "shifted": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
}


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_bad_index_of_an_older_segment_is_made_anew(suffix, damage):
    """Offset and time look-ups are right whatever became of the index, which was never synced."""
    files = SimFiles()
    before = filled(files)
    path = f"t-0/{before._segments[1].base_offset:020d}.{suffix}"
    content = files.read_bytes(path)
    assert len(content) > 24
    files.open(path).truncate(0)
    files.open(path).append([damage(content)])
    after = reopen(files, flushed=100)
    assert all(segment.indexes.offset_entries and segment.indexes.time_entries for segment in after._segments)
    for offset in reversed(range(100)):  # a reader that goes on is not looked up
        header, _ = next(iter_batches(after.read(offset, 1, up_to=100)))
        assert header.base_offset == offset
        *_, match = [*everything(after.search_time(NOW + offset, up_to=100))]
        assert match == (offset, NOW + offset, 3)
    assert [segment.max_timestamp for segment in after._segments] == [
        segment.max_timestamp for segment in before._segments
    ]


def everything(steps):
    """What a generator yields, and last what it returns."""
    yield (yield from steps)


def test_the_largest_time_is_known_when_the_end_of_the_time_index_is_lost():
    """The batches behind its last entry are read, or a young segment would be taken for an old one and deleted."""
    files = SimFiles()
    files.make_directory("t-0")
    log = PartitionLog(files, "t-0", CONFIG, now_ms=NOW)
    for number in range(40):
        timestamp = NOW + 10_000 if number == 9 else NOW + number
        log.append(batch(number, timestamp=timestamp), leader_epoch=3, now_ms=NOW)
    log.flush_point().sync()
    assert log._segments[1].base_offset > 15
    path = f"t-0/{0:020d}.timeindex"
    kept = files.read_bytes(path)[:24]
    files.open(path).truncate(0)
    files.open(path).append([kept])
    assert reopen(files, flushed=40)._segments[0].max_timestamp == NOW + 10_000


def test_damage_in_an_old_segment_is_left_to_the_reader():
    """A start does not read what was flushed long ago; a rebuilt index would meet the damage and refuse."""
    files = SimFiles()
    log = filled(files)
    old = log._segments[1]
    files.open(old.path(".log")).content[200] ^= 1
    assert reopen(files, flushed=100).end_offset == 100
    files.open(old.path(".index")).truncate(0)
    with pytest.raises(CorruptLog, match=r"\.log is damaged"):
        reopen(files, flushed=100)


@pytest.mark.parametrize("bit", [16, 0], ids=["far-behind-its-end", "one-behind-it"])
def test_a_header_that_lies_about_its_end_drops_nothing(bit):
    """Flushed segments that seem to begin too early, behind a last batch that says it has more records, are kept."""
    files = SimFiles()
    log = filled(files)
    second = log._segments[1]
    *_, (_, last) = second.headers()
    before = log_files(files)
    content = files.open(second.path(".log")).content
    content[last + 26 - bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptLog, match="is damaged behind offset"):
        reopen(files, flushed=100)
    assert log_files(files) == before


def test_after_a_clean_stop_the_last_batch_is_believed_where_the_snapshot_says_so():
    """One that says it has more records would move the end of the log, and it would not be detected."""
    files = SimFiles()
    log = filled(files)
    *_, (_, last) = log.active.headers()
    log.close(clean=True)
    files.open(log.active.path(".log")).content[last + 26] ^= 1
    with pytest.raises(CorruptLog, match="checksum"):
        reopen(files, flushed=100, clean=True)


def test_segments_that_vanished_are_a_loss_that_is_told():
    """A hole below the recovery point is never closed in silence."""
    files = SimFiles()
    log = filled(files)
    files.remove(log._segments[2].path(".log"))
    with pytest.raises(CorruptLog, match="it ends before"):
        reopen(files, flushed=100)
    for segment in log._segments:
        files.remove(segment.path(".log"))
    with pytest.raises(CorruptLog, match="are gone"):
        reopen(files, flushed=100)


def test_snapshots_that_no_segment_needs_are_removed():
    """Each clean stop leaves one; the next start keeps those at a segment's base, and the newest."""
    files = SimFiles()
    filled(files, 4).close(clean=True)
    for number in (4, 5, 6):
        log = reopen(files, flushed=number, clean=True)
        log.append(batch(number), leader_epoch=3, now_ms=NOW)
        log.close(clean=True)
    reopen(files, flushed=7, clean=True)
    assert [name for name in files.list("t-0") if name.endswith(".snapshot")] == [f"{7:020d}.snapshot"]


@pytest.mark.parametrize("closed", [False, True])
def test_the_last_five_batches_are_known_wherever_the_snapshot_lies(closed):
    """A segment that ended among the batches still under way hides none of them from a retry after the start."""
    rolled = filled(SimFiles(), 40)._segments[1].base_offset
    for count in range(rolled + 1, rolled + 6):
        files = SimFiles()
        before = filled(files, count)
        if closed:
            before.close(clean=True)
        after = reopen(files, flushed=count)
        for number in range(count - 5, count):
            appended = after.append(batch(number), leader_epoch=3, now_ms=NOW)
            assert (appended.duplicate, appended.first_offset) == (True, number)


def test_a_damaged_snapshot_is_passed_over():
    """The one before it and the headers behind that give the same producers."""
    files = SimFiles()
    before = filled(files)
    newest = before._segments[-1].path(".snapshot")
    files.replace(newest, files.read_bytes(newest)[:-1] + b"?")
    assert reopen(files, flushed=100).producers.snapshot() == before.producers.snapshot()


def test_a_lost_epoch_checkpoint_is_made_from_the_batches():
    """The whole log is read for it, once."""
    files = SimFiles()
    filled(files)
    files.remove("t-0/leader-epoch-checkpoint")
    assert reopen(files, flushed=100).epochs.entries == [(3, 0)]


def test_a_restart_does_not_put_off_a_roll():
    """The active segment is as old as its first record."""
    files = SimFiles()
    files.make_directory("t-0")
    config = LogConfig(segment_ms=1000, retention_ms=-1)
    PartitionLog(files, "t-0", config, now_ms=NOW).append(batch(0), leader_epoch=0, now_ms=NOW)
    again = PartitionLog(files, "t-0", config, now_ms=NOW + 900)
    again.maintain(NOW + 1000)
    assert bases(again) == [0]
    again.maintain(NOW + 1001)
    assert bases(again) == [0, 1]


def log_files(files: SimFiles) -> list[str]:
    """The names that say what is a segment."""
    return [name for name in files.list("t-0") if ".log" in name]


def test_deleted_segments_do_not_come_back_after_a_crash():
    """Their files are renamed before they go, so a crash within file.delete.delay.ms leaves only leftovers."""
    files = SimFiles()
    log = filled(files)
    start = log._segments[2].base_offset
    gone = bases(log)[:2]
    log.advance_start(start, NOW)
    log.remove_deleted(NOW)
    assert [f"{base:020d}.log.deleted" for base in gone] == log_files(files)[:2]
    files.cut_power(lambda limit: 0)
    after = reopen(files, flushed=100)
    assert (after.start_offset, bases(after)) == (start, bases(log))
    left = [name for name in files.list("t-0") if name.endswith(".deleted")]
    assert left == [f"{start:020d}.start.deleted"]  # what is kept says where the log begins


def test_deleted_segments_go_when_their_time_has_come():
    """Not before file.delete.delay.ms, nor later than the next look."""
    files = SimFiles()
    log = filled(files)
    log.advance_start(log._segments[2].base_offset, NOW)
    log.remove_deleted(NOW + CONFIG.file_delete_delay_ms - 1)
    assert log.has_deleted
    log.remove_deleted(NOW + CONFIG.file_delete_delay_ms)
    assert not log.has_deleted
    assert log_files(files) == [f"{base:020d}.log" for base in bases(log)]
    names = [name for name in files.list("t-0") if name.endswith((".index", ".snapshot")) and int(name[:20]) < 10]
    assert not names


@pytest.mark.parametrize("failing", range(6))
def test_a_deletion_that_failed_anywhere_is_finished_by_the_next_one(failing, monkeypatch):
    """A file that kept its name would come back at the next start, before a gap that looks like damage."""
    files = SimFiles()
    log = filled(files)
    start = log._segments[2].base_offset
    log.advance_start(start, NOW)
    renamed, real = [], files.rename

    def rename(old, new):
        renamed.append(new)
        if len(renamed) == failing + 1:
            raise OSError(24, "Too many open files")
        real(old, new)

    monkeypatch.setattr(files, "rename", rename)
    with pytest.raises(OSError, match="Too many"):
        log.remove_deleted(NOW + CONFIG.file_delete_delay_ms)
    log.remove_deleted(NOW + CONFIG.file_delete_delay_ms)
    assert not log.has_deleted
    assert log_files(files) == [f"{base:020d}.log" for base in bases(log)]
    files.cut_power(lambda limit: 0)
    assert reopen(files, flushed=100).start_offset == start


@pytest.mark.parametrize("steps", range(12))
def test_a_crash_at_any_step_of_a_deletion_leaves_a_log_that_opens(steps):
    """Whole segments are there or not; nothing behind the new start is touched."""
    files = SimFiles()
    log = filled(files)
    start = log._segments[2].base_offset
    log.advance_start(start, NOW)
    files.steps_left = steps
    with contextlib.suppress(PowerCut):
        log.remove_deleted(NOW + CONFIG.file_delete_delay_ms)
    files.cut_power(lambda limit: 0)
    after = reopen(files, flushed=100)
    assert after.start_offset in (0, *bases(filled(SimFiles()))[:3])
    assert after.end_offset == 100
    offset = after.start_offset
    while offset < 100:
        header, _ = next(iter_batches(after.read(offset, 1, up_to=100)))
        assert header.base_offset == offset
        offset = header.next_offset
