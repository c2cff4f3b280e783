"""Threads for plain functions, which may block.

Here: their number, and hanging calls.
Not here: which function is called (`declaring`).

asyncio's own pool is small: handlers, name lookups and abandoned calls would wait for one another. The threads are
daemons: Python joins the threads of a pool at exit, forever if one hangs.
"""

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final

from busway.net.machine import has_threads

logger: logging.Logger = logging.getLogger("busway.app")

THREADS_MAX: Final = 256
"""Concurrent calls of plain functions per app; further ones wait.

Each thread costs some 100 KB and shares one interpreter: for more concurrency use coroutine functions or more
processes.
"""


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    name: str
    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    context: contextvars.Context
    loop: asyncio.AbstractEventLoop
    result: asyncio.Future[Any]


class Threads:
    """A pool that grows with the concurrent calls up to `limit`; threads stay until `close`."""

    def __init__(self, limit: int = THREADS_MAX) -> None:
        self._limit = limit
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._calls: set[_Call] = set()
        self._started = 0

    async def run(self, function: Callable[..., Any], arguments: Mapping[str, Any], *, name: str) -> Any:
        """Call the function in a thread with the caller's context; return its result or raise its exception.

        A cancelled call that has begun continues in its thread; its result is dropped.
        """
        loop = asyncio.get_running_loop()
        call = _Call(name, function, arguments, contextvars.copy_context(), loop, loop.create_future())
        self._calls.add(call)
        if not has_threads():
            loop.run_in_executor(None, self._make, call)
            return await call.result
        if self._started < min(len(self._calls), self._limit):
            self._started += 1
            threading.Thread(target=self._work, name=f"busway-handler-{self._started}", daemon=True).start()
        self._queue.put(call)
        return await call.result

    def close(self) -> None:
        """Stop the threads; busy ones end with their call or with the process."""
        for _ in range(self._started):
            self._queue.put(None)
        self._started = 0
        if self._calls:
            names = ", ".join(sorted({call.name for call in self._calls}))
            logger.warning(
                "%d calls of plain functions are still running, and end with the process: %s", len(self._calls), names
            )

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            try:
                self._make(call)
            except RuntimeError:
                return  # the event loop is closed
            del call  # so that an idle thread keeps no record alive

    def _make(self, call: _Call) -> None:
        result: Any = None
        problem: BaseException | None = None
        if not call.result.cancelled():
            try:
                result = call.context.run(call.function, **call.arguments)
            except BaseException as raised:  # noqa: BLE001 - it is raised where the call is awaited
                problem = raised
        call.loop.call_soon_threadsafe(self._done, call, result, problem)

    def _done(self, call: _Call, result: Any, problem: BaseException | None) -> None:
        self._calls.discard(call)
        if call.result.done():
            return
        if problem is None:
            call.result.set_result(result)
        elif isinstance(problem, StopIteration):
            # A future cannot hold StopIteration: its waiter would never return.
            raised = RuntimeError("the handler raised StopIteration")
            raised.__cause__ = problem
            call.result.set_exception(raised)
        else:
            call.result.set_exception(problem)
