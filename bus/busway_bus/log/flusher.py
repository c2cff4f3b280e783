"""Group commit: one flusher for a data directory.

What lives here: the loop that syncs what is dirty and tells those who wait. While one sync is under way the next one's waiters
gather, so that a busy disk makes each wait a little longer but not one record slower. What does not: when a write counts as
acknowledged (`replication`). A failed sync is final: the kernel may have dropped the pages (reliability notes, fsync).
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from busway_bus.log.partition_log import FlushPoint, PartitionLog
from busway_protocol.errors import ErrorCode, KafkaError


class Flusher:
    """Syncs logs in a thread of its own, one sync at a time.

    Args:
        on_failure: called once when a sync fails; from then on every request is refused.
    """

    def __init__(self, on_failure: Callable[[OSError], None] | None = None) -> None:
        self._dirty: dict[PartitionLog, list[asyncio.Future[None]]] = {}
        self._running: asyncio.Future[None] | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="busway-flush")
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
        if self._running is None:
            self._start()
        return waiter

    def _start(self) -> None:
        taken = [(log, log.flush_point(), waiters) for log, waiters in self._dirty.items()]
        self._dirty = {}
        loop = asyncio.get_running_loop()
        self._running = loop.run_in_executor(self._executor, _sync, [point for _, point, _ in taken])
        self._running.add_done_callback(lambda done: self._finished(done, taken))

    def _finished(
        self,
        done: "asyncio.Future[None]",
        taken: list[tuple[PartitionLog, FlushPoint, list["asyncio.Future[None]"]]],
    ) -> None:
        self._running = None
        problem = None if done.cancelled() else done.exception()
        for log, point, waiters in taken:
            if problem is None:
                log.flushed(point)
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
        while self._running is not None:
            await asyncio.wait([self._running])
            await asyncio.sleep(0)

    def close(self) -> None:
        """Stop the thread; call `drain` first."""
        self._executor.shutdown(wait=True)


def _sync(points: list[FlushPoint]) -> None:
    for point in points:
        point.sync()


def _storage_error(problem: BaseException) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk failed: {problem}")
