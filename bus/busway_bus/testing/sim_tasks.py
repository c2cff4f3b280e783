"""Futures and tasks with a reproducible order in sets, and handles without asyncio's debug mode.

Here: these, the stack of a coroutine, and closing one.
Not here: when a task's step runs (`sim_loop`).
"""

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Sequence
from contextvars import Context
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
    """A task with its creation number as hash, which is set before asyncio's set of all tasks contains it."""

    __slots__ = ("number", "process")
    number: int
    process: Process

    def __hash__(self) -> int:
        return self.number


class SimHandle(asyncio.Handle):
    """A handle without debug mode: it is made for each step of a task."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., Any], args: Sequence[Any], loop: Any, context: Context) -> None:
        self._callback: Any = callback
        self._args: Any = args
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None


class SimTimer(asyncio.TimerHandle):
    """A timer without debug mode; the loop counts the cancelled ones that it still has."""

    __slots__ = ()

    def __init__(
        self, when: float, callback: Callable[..., Any], args: Sequence[Any], loop: Any, context: Context
    ) -> None:
        self._callback: Any = callback
        self._args: Any = args
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._repr = self._source_traceback = None
        self._when = when
        self._scheduled = True

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None
            if self._scheduled:
                self._loop._timer_handle_cancelled(self)


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
