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
    """A handle without debug mode: it is made for each step of a task. One without a callback is cancelled."""

    __slots__ = ()
    _callback: Any
    _args: Any
    _context: Context

    def __init__(self, callback: Callable[..., Any], args: Sequence[Any], context: Context) -> None:
        self._callback = callback
        self._args = args
        self._context = context

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._callback!r}>"

    def cancel(self) -> None:
        self._callback = self._args = None

    def cancelled(self) -> bool:
        return self._callback is None


class SimTimer(asyncio.TimerHandle):
    """A timer without debug mode; the loop counts the cancelled ones that it still has."""

    __slots__ = ()
    _callback: Any
    _args: Any
    _context: Context

    def __init__(
        self, when: float, callback: Callable[..., Any], args: Sequence[Any], loop: Any, context: Context
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._when = when
        self._scheduled = True

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._when} {self._callback!r}>"

    def cancel(self) -> None:
        if self._callback is not None:
            self._callback = self._args = None
            if self._scheduled:
                self._loop._timer_handle_cancelled(self)

    def cancelled(self) -> bool:
        return self._callback is None


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
