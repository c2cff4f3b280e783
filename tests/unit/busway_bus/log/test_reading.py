"""Where a reader's bytes lie: found by positions, and without a wait for the disk where that is asked for."""

import os

import pytest

from busway_bus.log.file_slice import ColdPages
from busway_bus.log.log_config import LogConfig
from busway_bus.log.os_files import OsFiles
from busway_bus.log.partition_log import PartitionLog
from busway_bus.testing.sim_files import SimFile, SimFiles
from busway_protocol.records.batch import iter_batches
from busway_protocol.records.builder import BatchBuilder

NOW = 1_700_000_000_000


class CountedFiles(SimFiles):
    """A disk that counts the reads of files whose names end so."""

    def __init__(self):
        super().__init__()
        self.reads = []

    def open(self, path):
        file = super().open(path)
        return Counted(self, path, file._directory, file._content)


class Counted(SimFile):
    """One file of it."""

    def read(self, position, size):
        data = super().read(position, size)
        self._files.reads.append((self._path.rpartition(".")[2], len(data)))
        return data


def filled(files, *, count=200) -> PartitionLog:
    """A log of small batches, flushed."""
    files.make_directory("t-0")
    log = PartitionLog(files, "t-0", LogConfig(retention_ms=-1), now_ms=NOW)
    for _ in range(count):
        append(log)
    flush(log)
    return log


def append(log, value=b"v" * 100):
    builder = BatchBuilder()
    builder.append(NOW, b"k", value)
    log.append(builder.build(), leader_epoch=0, now_ms=NOW)


def flush(log):
    point = log.flush_point()
    point.sync()
    log.flushed(point)


def test_a_reader_at_the_end_of_what_is_flushed_costs_no_read():
    """What a long poll asks again and again, how many bytes there are by now, is arithmetic."""
    files = CountedFiles()
    log = filled(files)
    start = log.size_bytes
    files.reads.clear()
    for _ in range(3):
        append(log)
        flushed = log.size_bytes
        flush(log)
        append(log)  # not flushed
        extent = log.extent(200, up_to=log.flushed_offset)
        assert (extent.position, extent.end) == (start, flushed)
    assert files.reads == []


def test_a_catch_up_read_looks_at_one_header_between_two_index_entries_at_most_4_kib_apart():
    """However many batches the answer has, none of them but the first is looked for."""
    files = CountedFiles()
    log = filled(files, count=2_000)
    for offset in (0, 777, 1_999):
        files.reads.clear()
        slice_read = log.slice(offset, 1024 * 1024, up_to=2_000)
        logs = [size for suffix, size in files.reads if suffix == "log"]
        assert len(logs) <= 1
        assert sum(logs) <= 8 * 1024
        header, _ = next(iter_batches(slice_read.take(len(slice_read))))
        assert header.base_offset == offset


def test_a_limit_cuts_the_last_batch_and_the_first_is_whole():
    """As Kafka answers: never less than one batch, and bytes of the last one that clients leave out (KIP-74)."""
    log = filled(SimFiles())
    batch_bytes = log.size_bytes // 200
    assert len(log.slice(3, 5 * batch_bytes + 7, up_to=200)) == 5 * batch_bytes + 7
    assert len(log.slice(3, 7, up_to=200)) == batch_bytes
    assert log.slice(3, 7, up_to=200, min_one=False) is None
    assert len(log.slice(198, 10 * batch_bytes, up_to=200)) == 2 * batch_bytes


def test_a_look_up_that_would_wait_for_the_disk_says_what_to_read_first():
    """Off the event loop the pages come into memory; then the same question is answered."""
    files = SimFiles()
    log = filled(files)
    files.cold.add(f"t-0/{0:020d}.log")
    with pytest.raises(ColdPages) as cold:
        log.slice(100, 1000, up_to=200, wait=False)
    assert len(log.slice(101, 1000, up_to=200)) == 1000
    cold.value.warm()
    slice_read = log.slice(100, 1000, up_to=200, wait=False)
    assert next(iter_batches(slice_read.take(1000)))[0].base_offset == 100


def test_a_slice_on_the_operating_systems_files(tmp_path):
    """It can be sent from its descriptor, part by part; pages that left memory are seen and come back."""
    files = OsFiles(str(tmp_path))
    log = filled(files, count=2_000)
    file_slice, bytes_ = log.slice(100, 100_000, up_to=2_000), log.read(100, 100_000, up_to=2_000)
    log.close(clean=False)
    for _ in range(3):
        part = os.pread(file_slice.descriptor, 1000, file_slice.position)
        file_slice.skip(1000)
        bytes_, sent = bytes_[1000:], bytes_[:1000]
        assert part == sent
    assert file_slice.in_memory(len(file_slice))
    os.posix_fadvise(file_slice.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    if not file_slice.in_memory(len(file_slice)):  # a file system in memory keeps them
        file_slice.warm(len(file_slice))
        assert file_slice.in_memory(len(file_slice))
    assert file_slice.take(1 << 20) == bytes_
    assert not file_slice
    files.close()
