"""Group commit: one flusher for a data directory.

What lives here: which log is synced when, and telling those who wait. While a log's sync is under way its next waiters gather for
the one after it, so that a busy disk makes each wait a little longer but not one record slower. Logs are synced beside each other:
a slow file makes its own waiters wait and nobody else. What does not: when a write counts as acknowledged (`replication`). A failed
sync is final: the kernel may have dropped the pages.
"""

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from busway_bus.kernel.limits import SYNCS_AT_ONCE_MAX, SYNCS_NEXT_MAX
from busway_bus.log.flush_point import FlushPoint
from busway_bus.log.partition_log import PartitionLog
from busway_protocol.errors import ErrorCode, KafkaError

Flushed: TypeAlias = Callable[[KafkaError | None], None]
"""Told that a sync is over, or why there will be none; it raises nothing."""
_Waiting: TypeAlias = dict[Flushed, None]
_Synced: TypeAlias = tuple[PartitionLog, FlushPoint, BaseException | None]
"""What was synced, or why it was not."""


class Flusher:
    """Syncs logs in threads of its own, of each log one sync at a time.

    Args:
        on_failure: called once when a sync fails; from then on every request is refused.
    """

    def __init__(self, on_failure: Callable[[OSError], None] | None = None) -> None:
        self._ready: dict[PartitionLog, _Waiting] = {}
        """Logs to be synced as soon as there is a thread, in the order in which that was asked for."""
        self._syncing: dict[PartitionLog, _Waiting] = {}
        self._again: dict[PartitionLog, _Waiting] = {}
        """Logs to be synced once more when their sync is over."""
        self._executor = ThreadPoolExecutor(SYNCS_AT_ONCE_MAX, thread_name_prefix="busway-flush")
        self._threads: set[asyncio.Future[_Synced]] = set()
        self._next: deque[tuple[PartitionLog, FlushPoint]] = deque()
        """What a thread takes that is done with its sync, without asking the event loop."""
        self._failed: OSError | None = None
        self._on_failure = on_failure

    @property
    def failed(self) -> OSError | None:
        """The error of the sync that failed, None while all is well."""
        return self._failed

    def flush(self, log: PartitionLog, flushed: Flushed) -> None:
        """Tell `flushed` when everything appended to `log` so far is on disk, once for all that ask before the sync begins.

        What it is told is KafkaError KAFKA_STORAGE_ERROR when the disk failed.
        """
        if self._failed is not None:
            flushed(_storage_error(self._failed))
            return
        waiting = (self._again if log in self._syncing else self._ready).setdefault(log, {})
        waiting[flushed] = None
        self._start()

    def request(self, log: PartitionLog) -> "asyncio.Future[None]":
        """The same as a future, for who waits alone."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.flush(log, functools.partial(_settle, waiter))
        return waiter

    def _start(self) -> None:
        """Begin what may begin."""
        while self._ready and len(self._next) < SYNCS_NEXT_MAX:
            log = next(iter(self._ready))
            self._syncing[log] = self._ready.pop(log)
            self._next.append((log, log.flush_point()))
            self._begin_thread()

    def _begin_thread(self) -> None:
        """Have a thread take what is next, where there is something and a thread is free."""
        if len(self._threads) < SYNCS_AT_ONCE_MAX and (due := self._take_next()) is not None:
            loop = asyncio.get_running_loop()
            thread = loop.run_in_executor(self._executor, self._sync, *due, loop)
            self._threads.add(thread)
            thread.add_done_callback(self._thread_ended)

    def _take_next(self) -> tuple[PartitionLog, FlushPoint] | None:
        try:
            return self._next.popleft()
        except IndexError:  # another thread was faster
            return None

    def _sync(self, log: PartitionLog, point: FlushPoint, loop: asyncio.AbstractEventLoop) -> "_Synced":
        """Sync, and what comes next as long as there is something; in a thread. What it did last is its result."""
        while True:
            problem: BaseException | None = None
            try:
                point.sync()
            except BaseException as raised:  # noqa: BLE001 - it is told to whoever waits
                problem = raised
            following = self._take_next()
            if following is None:
                return log, point, problem
            loop.call_soon_threadsafe(self._synced, log, point, problem)
            log, point = following

    def _thread_ended(self, thread: "asyncio.Future[_Synced]") -> None:
        self._threads.discard(thread)
        self._begin_thread()  # what was put there when this one had looked already
        if not thread.cancelled():
            self._synced(*thread.result())

    def _synced(self, log: PartitionLog, point: FlushPoint, problem: BaseException | None) -> None:
        waiting = self._syncing.pop(log)
        # What a disk says after it has failed is not believed, of other files neither.
        problem = self._failed or problem
        if problem is not None:
            self._refuse(log, waiting, problem)
            return
        log.flushed(point)
        if log in self._again:
            self._ready[log] = self._again.pop(log)
        self._start()  # the disk has work while the answers go out
        for flushed in waiting:
            flushed(None)

    def _refuse(self, log: PartitionLog, waiting: _Waiting, problem: BaseException) -> None:
        """Refuse whoever waits for any log: the next sync might succeed because the kernel has thrown the pages away."""
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
        """Wait for the syncs that are under way or asked for."""
        while self._threads:
            await asyncio.wait(self._threads)
            await asyncio.sleep(0)

    def close(self) -> None:
        """Stop the threads; call `drain` first."""
        self._executor.shutdown(wait=True)


def _settle(waiter: "asyncio.Future[None]", problem: KafkaError | None) -> None:
    if waiter.done():
        return
    if problem is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(problem)


def _storage_error(problem: BaseException) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk failed: {problem}")
