"""Group commit: one flusher for a data directory.

What lives here: which log is synced when, and telling those who wait. While a log's sync is under way its next waiters gather for
the one after it, so that a busy disk makes each wait a little longer but not one record slower. Logs are synced beside each other:
a slow file makes its own waiters wait and nobody else. What does not: when a write counts as acknowledged (`replication`). A failed
sync is final: the kernel may have dropped the pages (reliability notes, fsync).
"""

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from busway_bus.kernel.limits import SYNCS_AT_ONCE_MAX
from busway_bus.log.partition_log import FlushPoint, PartitionLog
from busway_protocol.errors import ErrorCode, KafkaError

Waiters = list["asyncio.Future[None]"]


class Flusher:
    """Syncs logs in threads of its own, of each log one sync at a time.

    Args:
        on_failure: called once when a sync fails; from then on every request is refused.
    """

    def __init__(self, on_failure: Callable[[OSError], None] | None = None) -> None:
        self._dirty: dict[PartitionLog, Waiters] = {}
        self._running: dict[PartitionLog, asyncio.Future[None]] = {}
        self._executor = ThreadPoolExecutor(SYNCS_AT_ONCE_MAX, thread_name_prefix="busway-flush")
        self._failed: OSError | None = None
        self._on_failure = on_failure

    @property
    def failed(self) -> OSError | None:
        """The error of the sync that failed, None while all is well."""
        return self._failed

    def request(self, log: PartitionLog) -> "asyncio.Future[None]":
        """A future that is done when everything appended to `log` so far is on disk.

        Its exception is KafkaError KAFKA_STORAGE_ERROR when the disk failed.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._failed is not None:
            waiter.set_exception(_storage_error(self._failed))
            return waiter
        self._dirty.setdefault(log, []).append(waiter)
        self._start()
        return waiter

    def _start(self) -> None:
        """Begin what may begin, in the order in which it was asked for."""
        loop = asyncio.get_running_loop()
        for log in [log for log in self._dirty if log not in self._running]:
            if len(self._running) >= SYNCS_AT_ONCE_MAX:
                return
            waiters, point = self._dirty.pop(log), log.flush_point()
            running = self._running[log] = loop.run_in_executor(self._executor, point.sync)
            running.add_done_callback(functools.partial(self._finished, point, waiters))

    def _finished(self, point: FlushPoint, waiters: Waiters, done: "asyncio.Future[None]") -> None:
        del self._running[point.log]
        # What a disk says after it has failed is not believed, of other files neither.
        problem = self._failed or done.exception()
        if problem is None:
            point.log.flushed(point)
        for waiter in waiters:
            if waiter.done():
                continue
            if problem is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(_storage_error(problem))
        if isinstance(problem, OSError):
            self._give_up(problem)
        elif self._dirty:
            self._start()

    def _give_up(self, problem: OSError) -> None:
        """Refuse whoever waits: the next sync might succeed because the kernel has thrown the pages away."""
        refused, self._dirty = self._dirty, {}
        for waiters in refused.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(_storage_error(problem))
        if self._failed is None:
            self._failed = problem
            if self._on_failure is not None:
                self._on_failure(problem)

    async def drain(self) -> None:
        """Wait for the syncs that are under way or asked for."""
        while self._running:
            await asyncio.wait(self._running.values())
            await asyncio.sleep(0)

    def close(self) -> None:
        """Stop the threads; call `drain` first."""
        self._executor.shutdown(wait=True)


def _storage_error(problem: BaseException) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk failed: {problem}")
