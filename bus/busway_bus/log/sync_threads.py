"""Threads that wait for the disk.

Here: work and what is called after it, on threads of their own.
Not here: the order of syncs (`flusher`). `run_in_executor` makes three futures for each work, which takes as long as a
sync of a fast disk. A simulated loop has no threads, and gets the work as its executor's.
"""

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import TypeAlias

from busway.net.machine import has_threads

Work: TypeAlias = Callable[[], None]
Ended: TypeAlias = Callable[[BaseException | None], None]
"""Called on the event loop, with what was raised."""
_Queue: TypeAlias = SimpleQueue[tuple[Work, Ended, asyncio.AbstractEventLoop] | None]


class SyncThreads:
    """At most `count` threads, started when they are needed.

    Attributes:
        running: works that have not ended, those that wait for a thread included.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self.running = 0
        self._queue: _Queue = SimpleQueue()
        self._threads: list[threading.Thread] = []  # noqa: TID251 - none on a simulated loop
        self._executor: ThreadPoolExecutor | None = None
        self._drained: asyncio.Future[None] | None = None
        weakref.finalize(self, _stop, self._queue, count)

    def run(self, work: Work, ended: Ended) -> None:
        loop = asyncio.get_running_loop()
        self.running += 1
        if not has_threads():
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._count, thread_name_prefix=self._name)
            running = loop.run_in_executor(self._executor, work)
            running.add_done_callback(partial(self._ran, ended))
            return
        self._queue.put((work, partial(self._ended, ended), loop))
        if self.running > len(self._threads) and len(self._threads) < self._count:
            self._start()

    def _start(self) -> None:
        # As a daemon: a process that ends without `close` does not wait for it.
        thread = threading.Thread(  # noqa: TID251 - as above
            target=_run, args=(self._queue,), name=self._name, daemon=True
        )
        try:
            thread.start()
        except RuntimeError as problem:  # the system allows no more of them
            if not self._threads and (entry := self._queue.get_nowait()) is not None:
                _, ended, loop = entry
                loop.call_soon(ended, problem)
            return
        self._threads.append(thread)

    def _ran(self, ended: Ended, running: "asyncio.Future[None]") -> None:
        self._ended(ended, asyncio.CancelledError() if running.cancelled() else running.exception())

    def _ended(self, ended: Ended, problem: BaseException | None) -> None:
        self.running -= 1
        try:
            ended(problem)
        finally:
            if not self.running and self._drained is not None and not self._drained.done():
                self._drained.set_result(None)

    async def drain(self) -> None:
        """Wait until no work runs."""
        while self.running:
            if self._drained is None or self._drained.done():
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._drained])

    def close(self) -> None:
        """Stop the threads after all works."""
        _stop(self._queue, len(self._threads))
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        if self._executor is not None:
            self._executor.shutdown()


def _run(queue: _Queue) -> None:
    while (entry := queue.get()) is not None:
        work, ended, loop = entry
        problem: BaseException | None = None
        try:
            work()
        except BaseException as raised:  # noqa: BLE001 - passed on to the event loop
            problem = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ended, problem)
        del entry, work, ended, problem


def _stop(queue: _Queue, count: int) -> None:
    for _ in range(count):
        queue.put(None)
