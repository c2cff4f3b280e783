"""Group commit: one flusher for a data directory.

Here: the order of syncs, callbacks. New waiters of a log that is being synced share its next sync; logs are synced
concurrently. A failed sync is final (`os_files`).
Not here: acknowledgement (`replication`).
"""

import asyncio
import functools
from collections.abc import Callable
from typing import TypeAlias

from busway_bus.kernel.limits import SYNCS_AT_ONCE_MAX, SYNCS_NEXT_MAX
from busway_bus.log.flush_point import FlushPoint
from busway_bus.log.partition_log import PartitionLog
from busway_bus.log.producer_state import ProducerState
from busway_bus.log.sync_threads import SyncThreads
from busway_protocol.errors import ErrorCode, KafkaError

Flushed: TypeAlias = Callable[[KafkaError | None], None]
"""Called with None after a sync, or with the error. Must not raise."""
_Waiting: TypeAlias = dict[Flushed, None]


class Flusher:
    """Threads that sync logs, one sync at a time for each log.

    `on_failure` is called once when a sync fails; later requests are refused.
    """

    def __init__(self, on_failure: Callable[[OSError], None] | None = None) -> None:
        self._ready: dict[PartitionLog, _Waiting] = {}
        """Logs waiting for a thread, in FIFO order."""
        self._syncing: dict[PartitionLog, _Waiting] = {}
        self._again: dict[PartitionLog, _Waiting] = {}
        """Logs to be synced again after their current sync."""
        self._threads = SyncThreads(SYNCS_AT_ONCE_MAX, "busway-flush")
        self._failed: OSError | None = None
        self._on_failure = on_failure

    @property
    def failed(self) -> OSError | None:
        return self._failed

    def flush(self, log: PartitionLog, *flushed: Flushed) -> None:
        """Call `flushed`, in this order, when everything appended to `log` is on disk.

        After a disk failure the argument is KAFKA_STORAGE_ERROR. The sync may begin at once: a second call has another.
        """
        if self._failed is not None:
            for waiter in flushed:
                waiter(_storage_error(self._failed))
            return
        waiting = (self._again if log in self._syncing else self._ready).setdefault(log, {})
        waiting.update(dict.fromkeys(flushed))
        self._start()

    def request(self, log: PartitionLog, *flushed: Flushed) -> "asyncio.Future[None]":
        """Return a future of the sync, set after `flushed` are called."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.flush(log, *flushed, functools.partial(_settle, waiter))
        return waiter

    async def cut(self, log: PartitionLog, work: Callable[[], ProducerState]) -> None:
        """Truncate a log in a thread while none of its syncs runs; those requested meanwhile follow.

        The log is busy until a truncation has succeeded. A cancelled caller would not wait for the thread.

        Args:
            work: `PartitionLog.cut` or `begin_at`; a retry of a failed truncation repeats it.

        Raises:
            KafkaError: the disk failed before.
            OSError: raised by `work`.
        """
        log.busy = True
        while log in self._syncing or log in self._ready:
            await self.request(log)
        if self._failed is not None:
            raise _storage_error(self._failed)
        self._syncing[log] = {}
        try:
            producers = await asyncio.get_running_loop().run_in_executor(None, work)
            log.producers = producers.in_place_of(log.producers)
            log.busy = False
        finally:
            del self._syncing[log]
            if log in self._again:
                self._ready[log] = self._again.pop(log)
            self._start()

    def _start(self) -> None:
        while self._ready and self._threads.running < SYNCS_AT_ONCE_MAX + SYNCS_NEXT_MAX:
            log = next(iter(self._ready))
            self._syncing[log] = self._ready.pop(log)
            point = log.flush_point()
            self._threads.run(point.sync, functools.partial(self._synced, log, point))

    def _synced(self, log: PartitionLog, point: FlushPoint, problem: BaseException | None) -> None:
        waiting = self._syncing.pop(log)
        # After a failure no sync of this disk is trusted, not even of other files.
        problem = self._failed or problem
        if problem is not None:
            self._refuse(log, waiting, problem)
            return
        log.flushed(point)
        if log in self._again:
            self._ready[log] = self._again.pop(log)
        self._start()  # the disk works while the callbacks run
        for flushed in waiting:
            flushed(None)

    def _refuse(self, log: PartitionLog, waiting: _Waiting, problem: BaseException) -> None:
        refused = [waiting, self._again.pop(log, {})]
        if isinstance(problem, OSError):
            refused += [*self._ready.values(), *self._again.values()]
            self._ready, self._again = {}, {}
            if self._failed is None:
                self._failed = problem
                if self._on_failure is not None:
                    self._on_failure(problem)
        for flushed in [flushed for waiters in refused for flushed in waiters]:
            flushed(_storage_error(problem))
        self._start()

    async def drain(self) -> None:
        await self._threads.drain()

    def close(self) -> None:
        """Stop the threads; call `drain` first."""
        self._threads.close()


def _settle(waiter: "asyncio.Future[None]", problem: KafkaError | None) -> None:
    if waiter.done():
        return
    if problem is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(problem)


def _storage_error(problem: BaseException) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk failed: {problem}")
