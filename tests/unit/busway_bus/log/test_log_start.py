"""What is deleted from the front of a log, on a full disk too: a start knows it from what is lost, whatever moment a crash comes at."""

import contextlib
import errno
import random

import pytest

from busway_bus.log.file_names import SNAPSHOT, START
from busway_bus.log.log_config import LogConfig
from busway_bus.log.os_files import OsFiles
from busway_bus.log.partition_log import CorruptLog, PartitionLog
from busway_bus.testing.sim_files import PowerCut, SimFiles
from busway_protocol.records.batch import iter_batches
from busway_protocol.records.builder import BatchBuilder

NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=1_000, index_interval_bytes=200)
DUE = NOW + CONFIG.file_delete_delay_ms
COUNT = 60
NOTHING = "t-0/nothing"


def fill(log: PartitionLog, count: int = COUNT) -> None:
    """Append batches of about 100 bytes."""
    for _ in range(count):
        builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=log.end_offset)
        builder.append(NOW, b"k", b"%030d" % log.end_offset)
        log.append(builder.build(), leader_epoch=3, now_ms=NOW)


def flush(log: PartitionLog) -> None:
    """Sync everything."""
    point = log.flush_point()
    point.sync()
    log.flushed(point)


def filled(files) -> PartitionLog:
    """A log of several segments, flushed on a disk that had no room for snapshots."""
    files.make_directory("t-0")
    log = PartitionLog(files, "t-0", CONFIG, now_ms=NOW)
    fill(log)
    if isinstance(files, SimFiles):
        files.faults.capacity = files.used() + len(log.epochs.text())
    flush(log)
    if not isinstance(files, SimFiles):
        for name in names(files, SNAPSHOT):
            files.remove(f"t-0/{name}")
    return log


def reopen(files, flushed: int, **options) -> PartitionLog:
    """The log after a crash."""
    return PartitionLog(files, "t-0", CONFIG, now_ms=NOW, flushed=flushed, **options)


def names(files, suffix: str) -> list[str]:
    """The files of a kind."""
    return [name for name in files.list("t-0") if name.endswith(suffix)]


def bases(log: PartitionLog) -> list[int]:
    """Where the segments begin."""
    return [segment.base_offset for segment in log._segments]


def all_there(log: PartitionLog) -> bool:
    """Whether each batch from the start on can be read."""
    base_offsets = [header.base_offset for raw in log.batches(log.start_offset) for header, _ in iter_batches(raw)]
    return base_offsets == list(range(log.start_offset, COUNT))


@pytest.mark.parametrize("flushed", [0, 10])
@pytest.mark.parametrize("delay", [0, CONFIG.file_delete_delay_ms])
def test_on_a_full_disk_segments_can_be_deleted_and_the_next_start_knows_it(flushed, delay):
    """No checkpoint and no snapshot could be written; neither is it a loss, nor is what follows taken for what was not acknowledged."""
    files = SimFiles()
    log = filled(files)
    start = bases(log)[2]
    log.advance_start(start, NOW)
    log.remove_deleted(NOW + delay)
    files.cut_power(lambda limit: 0)
    after = reopen(files, flushed)
    assert (after.start_offset, after.end_offset, bases(after)) == (start, COUNT, bases(log))
    assert all_there(after)


def test_a_deletion_makes_room_on_a_full_disk():
    """What the segments held can be written again, their indexes included."""
    files = SimFiles()
    log = filled(files)
    gone = sum(len(files.read_bytes(f"t-0/{name}")) for name in files.list("t-0") if name < f"{bases(log)[2]:020d}")
    with pytest.raises(OSError, match="No space"):
        files.replace(NOTHING, b"x")
    log.advance_start(bases(log)[2], NOW)
    log.remove_deleted(DUE)
    files.replace(NOTHING, bytes(gone))


@pytest.mark.parametrize("flushed", [0, 10])
def test_segments_that_are_deleted_at_a_clean_stop_are_no_loss_either(flushed):
    """The checkpoints that follow it may find no room."""
    files = SimFiles()
    log = filled(files)
    files.faults.capacity += 10_000
    start = bases(log)[2]
    log.advance_start(start, NOW)
    log.close(clean=True)
    for name in names(files, SNAPSHOT):
        files.remove(f"t-0/{name}")  # which had none before
    files.sync_directory("t-0")
    after = reopen(files, flushed)
    assert (after.start_offset, after.end_offset) == (start, COUNT)
    assert all_there(after)


@pytest.mark.parametrize("flushed", [0, 10, COUNT])
@pytest.mark.parametrize("steps", range(32))
def test_a_crash_at_any_step_of_two_deletions_leaves_a_log_that_opens(steps, flushed):
    """Whatever of the names is on disk: whole segments are there or not, and the next deletion works."""
    for seed in range(4):
        chance = random.Random(seed)
        files = SimFiles()
        log = filled(files)
        allowed = bases(log)
        files.steps_left = steps
        with contextlib.suppress(PowerCut):
            log.advance_start(allowed[1], NOW)
            log.remove_deleted(DUE)
            log.advance_start(allowed[3], NOW)
            log.remove_deleted(DUE)
        files.cut_power(chance.randrange if seed else lambda limit: 0)
        after = reopen(files, flushed)
        assert after.start_offset in allowed[:4]
        assert (after.end_offset, bases(after)) == (COUNT, allowed[allowed.index(after.start_offset) :])
        assert all_there(after)
        after.advance_start(allowed[4], NOW)
        after.remove_deleted(DUE)
        assert [(name, files.sizes("t-0")[name]) for name in names(files, START)] == [(f"{allowed[4]:020d}{START}", 0)]
        files.cut_power(chance.randrange)
        last = reopen(files, flushed)
        assert (last.start_offset, last.end_offset) == (allowed[4], COUNT)


@pytest.mark.parametrize("flushed", [0, 10, COUNT])
@pytest.mark.parametrize("clean", [False, True])
def test_what_is_lost_behind_what_was_deleted_is_told(flushed, clean):
    """Retention is no excuse for the segment that follows, nor for all that follow."""
    files = SimFiles()
    log = filled(files)
    log.advance_start(bases(log)[2], NOW)
    log.remove_deleted(DUE)
    for segment in log._segments:
        files.remove(segment.path(".log"))
        with pytest.raises(CorruptLog, match=f"begins at offset {log.start_offset}.* are gone"):
            reopen(files, flushed, clean=clean)


def test_where_the_start_cannot_be_told_nothing_is_deleted(monkeypatch):
    """Neither at the first deletion nor at a later one; the next attempt does it."""
    files = SimFiles()
    log = filled(files)
    real = files.rename

    def rename(old, new):
        if new.endswith(START):
            raise OSError(errno.EIO, "Input/output error")
        real(old, new)

    for first in (2, 2):
        before = names(files, ".log")
        log.advance_start(bases(log)[first], NOW)
        with monkeypatch.context() as broken:
            broken.setattr(files, "rename", rename)
            with pytest.raises(OSError, match="Input/output"):
                log.remove_deleted(DUE)
        assert names(files, ".log") == before
        log.remove_deleted(DUE)
        assert names(files, ".log") == before[2:]
        assert names(files, START) == [f"{log.start_offset:020d}{START}"]


def test_a_sync_that_failed_behind_the_renaming_is_made_up_for(monkeypatch):
    """The name is there and not on disk: nothing goes before it is, also where the log begins further on by then."""
    files = SimFiles()
    log = filled(files)

    def rename(old, new):
        files._move(old, new)
        raise OSError(errno.EIO, "Input/output error")

    def sync_directory(path):
        raise OSError(errno.EIO, "Input/output error")

    start, further = bases(log)[2:4]
    log.advance_start(start, NOW)
    for _ in range(2):
        monkeypatch.setattr(files, "rename", rename)
        monkeypatch.setattr(files, "sync_directory", sync_directory)
        with pytest.raises(OSError, match="Input/output"):
            log.remove_deleted(DUE)
        assert len(names(files, ".log")) == len(bases(log)) + 2
    monkeypatch.undo()
    log.advance_start(further, NOW)
    log.remove_deleted(DUE)
    files.cut_power(lambda limit: 0)
    assert reopen(files, 10).start_offset == further


def test_one_that_is_swapped_out_says_nothing_of_the_start():
    """Where a cleaned segment takes the place of others, the log begins where it did."""
    files = SimFiles()
    log = filled(files)
    files.faults.capacity = None
    old = log.closed_segments()[:2]
    new = log.kept.new_segment(old[0].base_offset, NOW)
    for segment in old:
        for header, position in segment.headers():
            new.append([segment.read(position, header.size_bytes)], header, CONFIG)
    new.sync()
    assert log.kept.rename(new, ".swap")
    assert log.swap_in(old, new, NOW)
    log.remove_deleted(DUE)
    assert not names(files, START)
    log.advance_start(bases(log)[1], NOW)  # before the new one has its name
    log.remove_deleted(NOW)
    files.cut_power(lambda limit: 0)
    after = reopen(files, 10)
    assert after.start_offset == log.start_offset
    assert all_there(after)


def test_a_swap_that_deletion_overtook_is_finished_and_hides_what_was_deleted():
    """A crash found the merged segment ready, and the first of those in it deleted: none of the second's records is lost."""
    files = SimFiles()
    log = filled(files)
    files.faults.capacity = None
    old = log.closed_segments()[:2]
    new = log.kept.new_segment(old[0].base_offset, NOW)
    for segment in old:
        for header, position in segment.headers():
            new.append([segment.read(position, header.size_bytes)], header, CONFIG)
    new.sync()
    assert log.kept.rename(new, ".swap")
    start = bases(log)[1]
    log.advance_start(start, NOW)
    log.remove_deleted(NOW)
    assert not log.swap_in(old, new, NOW)
    files.cut_power(lambda limit: 0)
    after = reopen(files, 10)
    assert (after.start_offset, bases(after)[:2]) == (start, [0, bases(log)[1]])
    assert all_there(after)


def test_a_real_disk_does_the_same(tmp_path):
    """One note, empty when the files are gone, moved by the next deletion of the next process."""
    files = OsFiles(str(tmp_path))
    log = filled(files)
    for at in (2, 1):
        start = bases(log)[at]
        log.advance_start(start, NOW)
        log.remove_deleted(NOW)
        assert names(files, START) == [f"{start:020d}{START}"]
        log.remove_deleted(DUE)
        assert files.sizes("t-0")[f"{start:020d}{START}"] == 0
        assert not log.has_deleted
        log.close(clean=False)
        log = reopen(files, 0)
        assert (log.start_offset, log.end_offset) == (start, COUNT)
        assert all_there(log)
    log.close(clean=True)
    files.close()
