"""Writes the core's changes to disk, in order: the election, the log, one sync for both.

Here: the queue, retries when the disk is full, the order of a downloaded snapshot's installation.
Not here: the consequences (`driver`). Appending does not wait; while an election is saved, the log truncated, or a
snapshot checked or installed, later writes stay queued: what rests on them is not persisted before. So a node whose log
is truncated does not lead, and its log is read by its image alone, which waits while the log is busy. The queue is bounded by what the core has in flight: proposals, one fetch response, and elections, of which a
newer replaces a waiting one.
"""

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from busway_bus.log.flusher import Flusher
from busway_bus.log.partition_log import PartitionLog
from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum.election_file import ElectionFile
from busway_bus.quorum.ready import LogWrite, Ready, SnapshotPart
from busway_bus.quorum.snapshot_download import SnapshotDownload
from busway_bus.quorum.states import Election
from busway_bus.scheduling.off_loop import off_loop
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.machine import Machine
from busway_protocol.records.batch import iter_batches

logger = logging.getLogger("busway.quorum")

RETRY_S: Final = 0.5
"""Pause before a failed write is retried, in s."""


def storage_error(problem: OSError | None) -> KafkaError:
    text = "" if problem is None else problem.strerror or problem
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot write the metadata log: {text}")


@dataclass(slots=True)
class _Write:
    """An entry of the queue: all on disk before `number` counts as persisted."""

    number: int
    save: Election | None
    changes: deque[LogWrite]
    changed: bool = False


class LogWriter:
    """Writes one metadata log and its election.

    Args:
        truncate, restart: see `QuorumDriver`.
        truncated: called after a truncation, during which the log is busy and not read.
        downloaded: called with the last part and whether the file is intact.
        installed: called when a snapshot has replaced the log.
        persisted: called with the number up to which all is on disk; never while `write` runs.
        refused: called with the reason when records outside the log cannot be written now, or never will be.
    """

    def __init__(
        self,
        partition_log: PartitionLog,
        *,
        truncate: Callable[[int], Awaitable[None]],
        restart: Callable[[int], Awaitable[None]],
        download: SnapshotDownload,
        truncated: Callable[[], None],
        downloaded: Callable[[SnapshotPart, bool], None],
        installed: Callable[[SnapshotId], None],
        election_file: ElectionFile,
        flusher: Flusher,
        machine: Machine,
        persisted: Callable[[int], None],
        refused: Callable[[KafkaError], None],
    ) -> None:
        self._log, self._truncate = partition_log, truncate
        self._file, self._flusher, self._machine = election_file, flusher, machine
        self._persisted, self._refused = persisted, refused
        self._restart, self._download = restart, download
        self._downloaded, self._installed, self._truncated = downloaded, installed, truncated
        self._after: Callable[[], None] | None = None
        self._queue: deque[_Write] = deque()
        self._saving: asyncio.Future[None] | None = None
        self._written = self._synced = 0
        self._cut_at: int | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False
        self.problem: OSError | None = None
        """Error of the last write; None if it succeeded."""

    @property
    def stuck(self) -> bool:
        """Whether a failed write waits for a retry."""
        return self.problem is not None and bool(self._queue)

    def write(self, ready: Ready) -> None:
        """Queue the writes of a `Ready`.

        A waiting entry without changes of the log is merged with the new one.
        """
        last = self._queue[-1] if self._queue else None
        waits = last is not None and not last.changes and (self._saving is None or len(self._queue) > 1)
        if last is not None and waits:
            last.number, last.save = ready.number, ready.save or last.save
            last.changes.extend(ready.append)
        else:
            self._queue.append(_Write(ready.number, ready.save, deque(ready.append)))
        self.resume()

    def resume(self) -> None:
        """Write the queue up to the next save of an election.

        A sync covers all that was written before it begins.
        """
        if self._saving is not None or self._closed:
            return
        while self._queue:
            write = self._queue[0]
            if write.save is not None:
                save = functools.partial(self._file.write, write.save)
                self._saving = asyncio.get_running_loop().run_in_executor(None, save)
                self._saving.add_done_callback(self._saved)
                return
            try:
                self._change(write)
            except OSError as problem:
                self._failed(problem)
                return
            if write.changes:
                return  # goes on when a thread is done with the first of them
            changed = write.changed
            self._queue.popleft()
            if changed:
                self._works()
            if changed or self._written > self._synced:
                self._written = write.number
                self._flusher.flush(self._log, functools.partial(self._flushed, write.number))
            else:
                asyncio.get_running_loop().call_soon(self._persisted, write.number)

    def withdraw(self, offset: int) -> None:
        for write in self._queue:
            write.changes = deque(
                change
                for change in write.changes
                if not change.batches or next(iter_batches(change.batches[0]))[0].base_offset < offset
            )

    async def close(self) -> None:
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        if self._saving is not None:
            await asyncio.wait([self._saving])

    def _saved(self, saving: "asyncio.Future[None]") -> None:
        self._saving = None
        problem = None if saving.cancelled() else saving.exception()
        if isinstance(problem, OSError):
            self._failed(problem)
        elif problem is not None:
            raise problem
        elif not saving.cancelled():
            self._queue[0].save = None
            self._works()
            self.resume()

    def _change(self, write: _Write) -> None:
        """Change the log, a batch at a time, up to what takes another thread.

        A retry skips what is done. OSError: the disk is full, or failed; the batch is not in the log.
        """
        now_ms = self._machine.wall_ms()
        while write.changes:
            change = write.changes[0]
            if change.part is not None:
                self._download.write(change.part)
            if (change.part is not None and change.part.last) or change.install is not None:
                self._in_thread(self._snapshot(change))
                return
            if change.truncate_to is not None and change.truncate_to < self._log.end_offset:
                self._cut_at = change.truncate_to  # kept for a retry, which may not see that anything is left
            if self._cut_at is not None:
                self._in_thread(self._truncate(self._cut_at))
                return
            for content in change.batches:
                for header, batch in iter_batches(content):
                    if header.base_offset >= self._log.end_offset:
                        assert header.base_offset == self._log.end_offset, f"{header.base_offset} does not follow"
                        self._log.append_own(batch, leader_epoch=header.partition_leader_epoch, now_ms=now_ms)
                        write.changed = True
            write.changes.popleft()

    def _in_thread(self, work: Awaitable[None]) -> None:
        self._saving = asyncio.ensure_future(work)
        self._saving.add_done_callback(self._thread_done)

    async def _snapshot(self, change: LogWrite) -> None:
        """Check a download, or replace the log by it. Records are removed after the file has its name."""
        download, part, snapshot = self._download, change.part, change.install
        if part is not None:
            intact = await off_loop(functools.partial(download.check, part.snapshot))
            self._after = functools.partial(self._downloaded, part, intact)
        elif snapshot is not None:
            await off_loop(functools.partial(download.name, snapshot))
            await self._restart(snapshot.offset)
            download.installed(snapshot)
            self._installed(snapshot)
            await off_loop(download.finish)

    def _thread_done(self, saving: "asyncio.Future[None]") -> None:
        self._saving = None
        problem = None if saving.cancelled() else saving.exception()
        if isinstance(problem, OSError):
            self._failed(problem)
        elif isinstance(problem, KafkaError):  # the disk failed for good
            self._refused(problem)
        elif problem is not None:
            raise problem
        elif not saving.cancelled():
            self._queue[0].changes.popleft()
            self._works()
            if self._cut_at is not None:
                self._cut_at, self._queue[0].changed = None, True
                self._truncated()
            self.resume()
            after, self._after = self._after, None
            if after is not None and not self._closed:
                after()

    def _flushed(self, number: int, problem: KafkaError | None) -> None:
        if problem is not None:
            self._refused(problem)
            return
        self._synced = max(self._synced, number)
        self._persisted(number)

    def _works(self) -> None:
        if self.problem is not None:
            logger.warning("%s can be written again", self._log.directory)
            self.problem = None

    def _failed(self, problem: OSError) -> None:
        if self.problem is None:
            logger.error("%s cannot be written, and is tried again: %s", self._log.directory, problem)
        self.problem = problem
        if self._closed:
            return
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)
        self._refused(storage_error(problem))

    def _try_again(self) -> None:
        self._retry = None
        self.resume()
