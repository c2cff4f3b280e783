"""A blocked event loop, and the handler that blocks it.

Here: a thread that pings the loop and inspects its stack.
Not here: partitions without progress (`busway.app.monitoring.health`).
"""

import asyncio
import inspect
import logging
import sys
import threading
from collections.abc import Sequence
from types import CodeType, FrameType, TracebackType
from typing import Final

from busway.app.model.topic import Route
from busway.net.machine import OS

logger: logging.Logger = logging.getLogger("busway.app")

LAG_S: Final = 1.0
"""Seconds without an answer after which the loop is reported."""
_LOOK_EVERY_S: Final = 0.5


class LoopWatch:
    """Watches the event loop on which it is entered; names functions of `routes` that block it."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._names: dict[CodeType, str] = {}
        for route in routes:
            code = getattr(inspect.unwrap(route.function), "__code__", None)
            if code is not None:
                self._names[code] = route.name
        self._ended = threading.Event()

    def __enter__(self) -> None:
        thread = threading.Thread(
            target=self._watch,
            args=(asyncio.get_running_loop(), threading.get_ident()),
            name="busway-loop-watch",
            daemon=True,
        )
        thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        while not self._ended.wait(_LOOK_EVERY_S):
            answered = threading.Event()
            asked_s = OS.monotonic_s()
            try:
                loop.call_soon_threadsafe(answered.set)
            except RuntimeError:
                return  # the loop is closed
            if answered.wait(LAG_S):
                continue
            handler, where = self._look(sys._current_frames().get(thread))
            if handler is not None:
                logger.warning(
                    "handler %s has kept the event loop for %g s, at %s: no other handler and no page runs meanwhile; let a plain "
                    "function (def), which runs in a thread, do what computes or waits without await",
                    handler,
                    LAG_S,
                    where,
                )
            else:
                logger.info("the event loop has been blocked for %g s, at %s", LAG_S, where)
            while not answered.wait(_LOOK_EVERY_S):
                if self._ended.is_set() or loop.is_closed():
                    return
            logger.log(
                logging.INFO if handler is None else logging.WARNING,
                "the event loop runs again after %.1f s",
                OS.monotonic_s() - asked_s,
            )

    def _look(self, frame: FrameType | None) -> tuple[str | None, str]:
        if frame is None:
            return None, "an unknown line"
        where = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        while frame is not None:
            if frame.f_code in self._names:
                return self._names[frame.f_code], where
            frame = frame.f_back
        return None, where
