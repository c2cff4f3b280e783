"""Futures and tasks with a reproducible order in sets.

Here: both, the stack of a coroutine, and closing one.
Not here: when a task's step runs (`sim_loop`).
"""

import asyncio
import contextlib
import inspect
from typing import Any

from busway_bus.testing.sim_process import Process


class SimFuture(asyncio.Future[Any]):
    """A future with its creation number as hash.

    The order in a set is thus the same in every run.
    """

    __slots__ = ("number", "process")
    number: int
    process: Process

    def __hash__(self) -> int:
        return self.number


class SimTask(asyncio.Task[Any]):
    __slots__ = ("number", "process")

    def __init__(self, process: Process, number: int, coro: Any, **options: Any) -> None:
        self.process = process
        self.number = number  # before any set contains it
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number


def where(coro: Any) -> list[str]:
    lines = []
    while coro is not None:
        frame = getattr(coro, "cr_frame", None)
        if frame is None:
            break
        lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}")
        coro = getattr(coro, "cr_await", None)
    return lines


def end(coro: Any) -> None:
    """Close a coroutine, in up to ten attempts if it ignores GeneratorExit.

    An unstarted one's coroutine arguments are closed first.
    """
    if inspect.iscoroutine(coro) and inspect.getcoroutinestate(coro) == inspect.CORO_CREATED:
        assert coro.cr_frame is not None
        for argument in coro.cr_frame.f_locals.values():
            if inspect.iscoroutine(argument):
                end(argument)
    for _ in range(10):
        with contextlib.suppress(BaseException):  # the world is over: no handler is left
            coro.close()
            return
