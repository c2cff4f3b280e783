"""Futures and tasks whose order in a set is the same in every run.

What lives here: them, where a coroutine waits, and letting go of one. What does not: when a task's step runs (`sim_loop`).
"""

import asyncio
import contextlib
import inspect
from typing import Any

from busway_bus.testing.sim_process import Process


class SimFuture(asyncio.Future[Any]):
    """A future whose hash is the number of its making, so that the order in a set of them is the same in every run."""

    __slots__ = ("number", "process")
    number: int
    process: Process

    def __hash__(self) -> int:
        return self.number


class SimTask(asyncio.Task[Any]):
    """A task whose hash is the number of its making."""

    __slots__ = ("number", "process")

    def __init__(self, process: Process, number: int, coro: Any, **options: Any) -> None:
        self.process = process
        self.number = number  # before anything puts it into a set
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number


def where(coro: Any) -> list[str]:
    """Where a coroutine waits, from the outermost call inwards."""
    lines = []
    while coro is not None:
        frame = getattr(coro, "cr_frame", None)
        if frame is None:
            break
        lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}")
        coro = getattr(coro, "cr_await", None)
    return lines


def end(coro: Any) -> None:
    """Close a coroutine that may not want to, and where it has not begun, those that it would await."""
    if inspect.iscoroutine(coro) and inspect.getcoroutinestate(coro) == inspect.CORO_CREATED:
        assert coro.cr_frame is not None
        for argument in coro.cr_frame.f_locals.values():
            if inspect.iscoroutine(argument):
                end(argument)
    for _ in range(10):
        with contextlib.suppress(BaseException):  # nobody is left to be told
            coro.close()
            return
