"""A log whose records are all removed starts at the given offset, also where the disk fails or the power goes at any step."""

import asyncio
import errno
import itertools
from random import Random
from uuid import UUID

import pytest

from busway_bus.log.flusher import Flusher
from busway_bus.log.log_config import LogConfig
from busway_bus.log.partition_log import PartitionLog
from busway_bus.log.store import LogStore
from busway_bus.testing.sim_files import PowerCut, SimFiles
from busway_protocol.records.builder import BatchBuilder

NOW = 1_700_000_000_000
CONFIG = LogConfig(retention_ms=-1, segment_bytes=300, index_interval_bytes=100)
KEY, ID = ("t", 0), UUID(int=7)
STEPS_MAX = 200


class Disk(SimFiles):
    """A disk on which one step fails, or the power goes at it."""

    good_steps: int | None = None
    power = False

    def check_disk(self) -> None:
        """Fail once the steps are used up."""
        super().check_disk()
        if self.good_steps is not None:
            self.good_steps -= 1
            if self.good_steps < 0:
                self.good_steps = None
                raise PowerCut if self.power else OSError(errno.EIO, "simulated input/output error of one step")


def batch(epoch: int) -> bytes:
    """A batch of one record."""
    builder = BatchBuilder()
    builder.append(NOW, b"k", bytes(50))
    return builder.build(0, epoch)


def opened(files: SimFiles) -> tuple[LogStore, PartitionLog]:
    """The log, and the store that it is in."""
    numbers = itertools.count(1)
    store = LogStore(files, node_id=1, new_ids=lambda: UUID(int=next(numbers)))
    return store, store.open("t", 0, ID, CONFIG, NOW)


async def written() -> tuple[Disk, LogStore, PartitionLog]:
    """A log of several segments and epochs, some of it in checkpoints."""
    files = Disk()
    store, log = opened(files)
    flusher = Flusher()
    for epoch in range(12):
        log.append(batch(epoch), leader_epoch=epoch, now_ms=NOW)
    await flusher.request(log)
    store.write(store.checkpoint({KEY: log.end_offset}))
    return files, store, log


def begin(store: LogStore, offset: int) -> None:
    """Remove the records of the open log."""
    log = store.logs[KEY]
    log.producers = store.begin_at(KEY, offset, NOW).in_place_of(log.producers)


def goes_on(store: LogStore, log: PartitionLog, offset: int) -> None:
    """It is empty there, and takes records of a later epoch, also after a start."""
    assert (log.start_offset, log.end_offset, log.flushed_offset) == (offset, offset, offset)
    assert (list(log.batches()), log.epochs.entries, log.size_bytes) == ([], [], 0)
    log.append(batch(20), leader_epoch=20, now_ms=NOW)
    assert log.epochs.entries == [(20, offset)]
    store.close(clean=True)


@pytest.mark.parametrize("offset", [5, 12, 100])
async def test_it_begins_where_it_is_told(offset: int) -> None:
    """Before its old end, at it and behind it."""
    files, store, log = await written()
    begin(store, offset)
    goes_on(store, log, offset)
    _, again = opened(files)
    assert (again.start_offset, again.end_offset, again.epochs.entries) == (offset, offset + 1, [(20, offset)])


@pytest.mark.parametrize("offset", [5, 100])
async def test_a_disk_that_fails_at_any_step_is_tried_again(offset: int) -> None:
    """On the same open log."""
    for steps in range(STEPS_MAX):
        files, store, log = await written()
        files.good_steps = steps
        try:
            begin(store, offset)
        except OSError:
            begin(store, offset)
            goes_on(store, log, offset)
        else:
            assert steps > 10
            return
    pytest.fail("it takes no end of steps")


@pytest.mark.parametrize("offset", [5, 100])
async def test_a_power_cut_at_any_step_is_repeated_by_the_next_start(offset: int) -> None:
    """Whatever is left: the caller knows that it was under way, and has it done before it opens the log."""
    for steps in range(STEPS_MAX):
        files, store, _ = await written()
        files.good_steps, files.power = steps, True
        try:
            begin(store, offset)
        except PowerCut:
            files.cut_power(Random(steps).randrange)
            numbers = itertools.count(1)
            store = LogStore(files, node_id=1, new_ids=lambda numbers=numbers: UUID(int=next(numbers)))
            store.restart(KEY, offset)
            goes_on(store, store.open("t", 0, ID, CONFIG, NOW, flushed=offset), offset)
        else:
            assert steps > 10
            return
    pytest.fail("it takes no end of steps")


async def test_a_flush_under_way_leaves_nothing_of_the_old_log() -> None:
    """What it would write of epochs and producers is of records that are gone."""
    files, store, log = await written()
    log.append(batch(13), leader_epoch=13, now_ms=NOW)
    log.roll(NOW)
    point = log.flush_point()
    begin(store, 100)
    await asyncio.to_thread(point.sync)
    log.flushed(point)
    goes_on(store, log, 100)
    names = files.list("t-0")
    assert not [name for name in names if name.endswith(".snapshot") and int(name[:20]) < 100]
