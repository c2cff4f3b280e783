"""Truncation of the metadata log, and its replacement by a snapshot: in a thread, alone on the log, repeated after a failure, in order with what follows."""

import asyncio
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.support.waiting import until
from tests.unit.busway_bus.replication.test_follower_logs import NOW, Gate, batches

from busway.net.machine import OS
from busway_bus.log.flusher import Flusher
from busway_bus.log.log_config import LogConfig
from busway_bus.log.store import LogStore
from busway_bus.metadata.records import TOPIC
from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum.election_file import ElectionFile
from busway_bus.quorum.log_writer import LogWriter
from busway_bus.quorum.ready import LogWrite, Ready
from busway_bus.quorum.states import Election
from busway_bus.quorum.voters import ReplicaKey

KEY = (TOPIC, 0)


class Written:
    """A log with ten flushed records, and its writer."""

    def __init__(self) -> None:
        self.files, numbers = Gate(), itertools.count(100)
        store = LogStore(self.files, node_id=1, new_ids=lambda: UUID(int=next(numbers)))
        self.log = store.open(*KEY, UUID(int=1), LogConfig(), NOW, new=True)
        self.flusher = Flusher()
        self.election = ElectionFile(self.files, f"{TOPIC}-0")
        self.persisted: list[int] = []
        self.problems: list[Exception] = []
        self.read_again = 0
        self.steps: list[object] = []
        self.writer = LogWriter(
            self.log,
            truncate=lambda offset: self.flusher.cut(self.log, functools.partial(store.cut, KEY, offset, NOW)),
            restart=lambda offset: self.flusher.cut(self.log, functools.partial(store.begin_at, KEY, offset, NOW)),
            truncated=self._truncated,
            download=cast("Any", SimpleNamespace(name=self.steps.append, installed=self._named, finish=lambda: None)),
            downloaded=cast("Any", None),
            installed=self.steps.append,
            election_file=self.election,
            flusher=self.flusher,
            machine=OS,
            persisted=self.persisted.append,
            refused=self.problems.append,
        )

    def _truncated(self) -> None:
        assert not self.log.busy
        self.read_again += 1

    def _named(self, snapshot: SnapshotId) -> None:
        assert (self.log.busy, self.log.start_offset, self.log.end_offset) == (False, snapshot.offset, snapshot.offset)

    async def begin(self) -> None:
        self.write(1, LogWrite(batches=(batches(0, 10),)))
        await until(lambda: self.persisted == [1])
        self.files.loop_thread = threading.get_ident()

    def write(self, number: int, *changes: LogWrite) -> None:
        self.writer.write(Ready(number=number, append=changes))


@pytest.fixture
def written() -> Iterator[Callable[[], Written]]:
    made: list[Written] = []

    def make() -> Written:
        made.append(Written())
        return made[-1]

    yield make
    for each in made:
        each.files.opened.set()
        each.flusher.close()


async def test_a_truncation_does_not_hold_the_event_loop(written: Callable[[], Written]) -> None:
    """What follows waits, and so does the reader of what was committed."""
    log = written()
    await log.begin()
    log.files.opened.clear()
    log.write(2, LogWrite(truncate_to=6))
    log.write(3, LogWrite(batches=(batches(6, 2),)))
    await until(lambda: log.files.waits > 0)
    assert (log.log.busy, log.persisted, log.read_again) == (True, [1], 0)
    log.files.opened.set()
    await until(lambda: log.persisted == [1, 2, 3] or log.persisted == [1, 3])
    assert (log.log.end_offset, log.log.flushed_offset, log.log.busy, log.read_again) == (8, 8, False, 1)


async def test_a_vote_after_a_truncation_is_saved_after_it(written: Callable[[], Written]) -> None:
    """A candidate without the truncation on disk could lead: its log would be read. What it withdraws is not the truncation."""
    log = written()
    await log.begin()
    log.files.opened.clear()
    log.write(2, LogWrite(truncate_to=6))
    await until(lambda: log.files.waits > 0)
    vote = Election(epoch=3).voting_for(ReplicaKey(1, UUID(int=7)))
    log.writer.write(Ready(number=3, save=vote))
    log.write(4, LogWrite(batches=(batches(6, 1),)), LogWrite(truncate_to=6), LogWrite(batches=(batches(6, 3),)))
    log.writer.withdraw(6)
    assert (log.election.read().epoch, log.persisted) == (0, [1])
    log.files.opened.set()
    await until(lambda: log.persisted[-1:] == [4])
    assert (log.election.read(), log.log.end_offset, log.read_again) == (vote, 6, 1)


async def test_the_installation_of_a_snapshot_does_not_hold_the_event_loop(written: Callable[[], Written]) -> None:
    """The records are removed in a thread; until the image loads the snapshot, the log is busy. What follows waits."""
    log = written()
    await log.begin()
    snapshot = SnapshotId(20, 3)
    log.files.opened.clear()
    log.write(2, LogWrite(install=snapshot))
    log.write(3, LogWrite(batches=(batches(20, 1),)))
    await until(lambda: log.files.waits > 0)
    assert (log.log.busy, log.persisted, log.steps) == (True, [1], [snapshot])
    log.files.opened.set()
    await until(lambda: 3 in log.persisted)
    assert (log.steps, log.log.end_offset, log.log.busy) == ([snapshot, snapshot], 21, False)


async def test_a_truncation_that_failed_is_repeated_whole(written: Callable[[], Written]) -> None:
    """The files end there already: the log is still busy, and nothing is appended."""
    log = written()
    await log.begin()
    log.files.full = True
    log.write(2, LogWrite(truncate_to=6))
    await until(lambda: log.writer.stuck)
    log.write(3, LogWrite(batches=(batches(6, 2),)))
    await until(lambda: len(log.problems) > 1)
    assert (log.log.end_offset, log.log.busy, log.persisted) == (6, True, [1])
    log.files.full = False
    log.writer.resume()
    await until(lambda: 3 in log.persisted)
    assert (log.log.end_offset, log.log.flushed_offset, log.log.busy, log.read_again) == (8, 8, False, 1)


async def test_the_end_waits_for_a_truncation(written: Callable[[], Written]) -> None:
    """The files are closed afterwards."""
    log = written()
    await log.begin()
    log.files.opened.clear()
    log.write(2, LogWrite(truncate_to=6))
    await until(lambda: log.files.waits > 0)
    closing = asyncio.ensure_future(log.writer.close())
    await asyncio.sleep(0)
    assert not closing.done()
    log.files.opened.set()
    await closing
    assert not log.log.busy
