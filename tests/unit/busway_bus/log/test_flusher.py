"""Group commit: who waits for which sync, and that a failed one is the last."""

import asyncio
import threading

import pytest

from busway_bus.kernel.limits import SYNCS_AT_ONCE_MAX, SYNCS_NEXT_MAX
from busway_bus.log.flusher import Flusher
from busway_bus.log.log_config import LogConfig
from busway_bus.log.partition_log import PartitionLog
from busway_bus.testing.sim_files import SimFile, SimFiles
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.builder import BatchBuilder

NOW = 1_700_000_000_000


def batch(value: bytes = b"v") -> bytes:
    """A batch of one record."""
    builder = BatchBuilder()
    builder.append(NOW, b"k", value)
    return builder.build()


def make_log(files: SimFiles, name: str = "t-0", segment_bytes: int = 200) -> PartitionLog:
    """An empty log whose segments hold two batches."""
    files.make_directory(name)
    return PartitionLog(files, name, LogConfig(segment_bytes=segment_bytes), now_ms=NOW)


def append(log: PartitionLog, count: int = 1) -> None:
    """Append some batches."""
    for _ in range(count):
        log.append(batch(), leader_epoch=-1, now_ms=NOW)


@pytest.fixture
async def flusher():
    """A flusher that is closed at the end; its failures are in `failures`."""
    failures = []
    made = Flusher(failures.append)
    made.failures = failures
    yield made
    await made.drain()
    made.close()


def test_a_roll_does_not_wait_for_the_disk():
    """However many segments appends fill, the loop's thread never syncs."""
    files = SimFiles()
    log = make_log(files)
    before = files.syncs
    append(log, 9)
    assert log.active.base_offset == 8
    assert files.syncs == before


async def test_a_batch_that_waits_is_refused_when_the_next_one_spoils_the_file(flusher, monkeypatch):
    """An index that takes no entry, and can neither be cut: the log file is closed before what is in it was synced."""
    log = make_log(SimFiles(), segment_bytes=100_000)
    log.config = LogConfig(segment_bytes=100_000, index_interval_bytes=0)
    append(log)
    await flusher.request(log)
    append(log)

    def fail(*_):
        raise OSError(28, "no space left")

    index, real = log.active.indexes._offset_file, SimFile.append
    monkeypatch.setattr(SimFile, "append", lambda file, pieces: fail() if file is index else real(file, pieces))
    monkeypatch.setattr(SimFile, "truncate", fail)
    with pytest.raises(OSError, match="no space"):
        append(log)
    with pytest.raises(KafkaError, match="no space"):
        await flusher.request(log)
    assert log.flushed_offset == 1
    assert flusher.failures


async def test_a_flush_covers_the_segments_rolled_since_the_last_one(flusher):
    """After the future is done every appended batch survives a power cut, also those in older segments."""
    files = SimFiles()
    log = make_log(files)
    append(log, 9)
    await flusher.request(log)
    assert log.flushed_offset == 9
    files.cut_power(lambda limit: 0)
    again = PartitionLog(files, "t-0", log.config, now_ms=NOW)
    assert (again.start_offset, again.end_offset) == (0, 9)


async def test_waiters_that_gather_during_a_sync_share_the_next_one(flusher):
    """One sync for the first request, one for all that came while it ran."""
    files = SimFiles()
    log = make_log(files, segment_bytes=10**6)
    before = files.syncs
    append(log)
    first = flusher.request(log)
    later = []
    for _ in range(20):
        append(log)
        later.append(flusher.request(log))
    await asyncio.gather(first, *later)
    assert files.syncs - before == 2
    assert log.flushed_offset == 21


async def test_a_slow_file_makes_its_own_waiters_wait(flusher):
    """While one log's sync is held, other logs are synced again and again, and more of them than there are threads."""

    class Held(SimFiles):
        """Holds syncs of the file of log t-0 until `gate` is set."""

        gate = threading.Event()

        def open(self, path):
            file = super().open(path)
            return HeldFile(file) if path.startswith("t-0/") else file

    class HeldFile:
        def __init__(self, file):
            self.file = file

        def sync(self):
            Held.gate.wait()
            self.file.sync()

        def __getattr__(self, name):
            return getattr(self.file, name)

    files = Held()
    files.gate.set()
    slow = make_log(files, segment_bytes=10**6)
    files.gate.clear()
    append(slow)
    held = [flusher.request(slow)]
    append(slow)
    held.append(flusher.request(slow))
    others = [make_log(files, f"u-{number}") for number in range(20)]
    for _ in range(3):
        for log in others:
            append(log, 2)
        await asyncio.gather(*[flusher.request(log) for log in others])
    assert [log.flushed_offset for log in others] == [6] * 20
    assert not any(waiter.done() for waiter in held)
    assert slow.flushed_offset == 0
    files.gate.set()
    await asyncio.gather(*held)
    assert slow.flushed_offset == 2


async def test_a_failed_sync_is_final(flusher):
    """No append is acknowledged after a sync failed: not its waiters, not those behind it, not later ones on a healed disk."""
    files = SimFiles()
    log, other = make_log(files), make_log(files, "u-0")
    append(log)
    files.failing_syncs = True
    waiting = [flusher.request(log)]
    append(other)
    waiting.append(flusher.request(other))
    done, _ = await asyncio.wait([waiting[0]])
    files.failing_syncs = False
    outcomes = await asyncio.gather(*waiting, flusher.request(log), return_exceptions=True)
    assert [outcome.code for outcome in outcomes] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert (log.flushed_offset, other.flushed_offset) == (0, 0)
    assert len(flusher.failures) == 1
    assert flusher.failed is not None
    assert done


async def test_a_failed_sync_refuses_those_that_wait_for_a_thread(flusher):
    """More logs than threads: those that are next, and those behind them."""
    files = SimFiles()
    logs = [make_log(files, f"u-{number}") for number in range(SYNCS_AT_ONCE_MAX + SYNCS_NEXT_MAX + 3)]
    for log in logs:
        append(log)
    files.failing_syncs = True
    outcomes = await asyncio.gather(*[flusher.request(log) for log in logs], return_exceptions=True)
    assert {outcome.code for outcome in outcomes} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert [log.flushed_offset for log in logs] == [0] * len(logs)
    assert len(flusher.failures) == 1


async def test_whoever_asks_for_a_log_again_before_its_sync_is_told_once(flusher):
    """A partition's list of acknowledgements is completed once for each sync, however many records came."""
    log, outcomes = make_log(SimFiles(), segment_bytes=10**6), []
    for _ in range(5):
        append(log)
        flusher.flush(log, outcomes.append)
    await flusher.request(log)
    assert outcomes == [None, None], "one sync for the first record, one for all that came during it"
    assert log.flushed_offset == 5


async def test_a_sync_of_a_rolled_segment_that_fails_is_final_too(flusher):
    """The error of an older segment's sync, or of its snapshot, reaches the flusher like any other."""
    files = SimFiles()
    log = make_log(files)
    append(log, 5)
    files.failing_syncs = True
    with pytest.raises(KafkaError) as caught:
        await flusher.request(log)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert flusher.failures
    assert log.flushed_offset == 0


async def test_a_topic_deleted_during_a_sync_is_no_failure(flusher):
    """The directory may be gone when the flusher comes to it; the disk has not failed then."""
    files = SimFiles()
    log = make_log(files)
    append(log, 5)
    log.close(clean=False)
    files.remove_tree("t-0")
    await flusher.request(log)
    assert not flusher.failures


def test_an_append_whose_index_cannot_be_written_leaves_nothing_behind():
    """An error after the batch itself was written takes it back, so that no offset is given twice."""

    class NoIndex(SimFiles):
        def create_later(self, path):
            file = super().create_later(path)
            return Refusing(file) if path.endswith(".index") else file

    class Refusing:
        def __init__(self, file):
            self.file = file
            self.size = 0

        def append(self, pieces):
            raise OSError(28, "simulated: no space left")

        def truncate(self, size):
            self.file.truncate(size)

        def read(self, position, size):
            return b""

        def close(self):
            self.file.close()

    files = NoIndex()
    files.make_directory("t-0")
    log = PartitionLog(files, "t-0", LogConfig(index_interval_bytes=10), now_ms=NOW)
    append(log)
    for _ in range(2):
        with pytest.raises(OSError, match="no space"):
            append(log)
    assert (log.end_offset, log.size_bytes) == (1, len(batch()))
    assert files.open("t-0/00000000000000000000.log").size == len(batch())


async def test_a_snapshot_that_cannot_be_written_is_no_failed_flush(flusher, monkeypatch, caplog):
    """The records are on disk; it stopped the whole node. The next start reads from an older snapshot on."""
    files = SimFiles()
    log = make_log(files)
    replace = files.replace

    def refuse(path, content):
        if path.endswith(".snapshot"):
            raise OSError(5, "Input/output error")
        replace(path, content)

    monkeypatch.setattr(files, "replace", refuse)
    append(log, 5)
    await flusher.request(log)
    assert (log.flushed_offset, flusher.failed, flusher.failures) == (5, None, [])
    assert "snapshot of t-0 at offset 2 cannot be written" in caplog.text
    log.close(clean=True)
    files.cut_power(lambda limit: 0)
    assert PartitionLog(files, "t-0", log.config, now_ms=NOW, flushed=5).end_offset == 5
