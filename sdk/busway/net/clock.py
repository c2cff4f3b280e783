"""Clocks of an event loop: real time and an app's frozen time.

Here: `REAL_TIME` and `APP_TIME`, for Busway's waits.
Not here: the loop with two clocks (`busway.testing.frozen_time`).

Under `app.test(clock="manual")` the app's tasks run with `WAITS_IN` set to `Time.USER`: their asyncio waits use frozen
time. The SDK's clients wait by `REAL_TIME`, because brokers and registries are not frozen; the app's waits use
`APP_TIME`. Without a frozen clock, both are asyncio's functions. `tests/tidy` checks that modules that use them do not
wait by asyncio directly.
"""

import asyncio
import contextlib
import enum
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from busway.net.machine import current_machine

Waited = TypeVar("Waited", bound="asyncio.Future[Any]")


class Time(enum.Enum):
    REAL = enum.auto()
    APP = enum.auto()
    """Frozen; waits of the app's internal code."""
    USER = enum.auto()
    """Frozen; waits of handlers, dependencies, extensions, the lifespan, and libraries that they call."""


WAITS_IN: Final[ContextVar[Time]] = ContextVar("busway_waits_in", default=Time.REAL)
"""Clock of asyncio's waits in this context; set only in tests with a frozen clock, inherited by tasks."""


class Clock:
    """asyncio's waits on one clock; the loop's time unless a test has frozen it."""

    __slots__ = ("_time",)

    def __init__(self, time: Time) -> None:
        self._time = time

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Use this clock for asyncio's waits in the block; tasks and connections made within keep it."""
        if WAITS_IN.get() is Time.REAL:
            yield
            return
        token = WAITS_IN.set(self._time)
        try:
            yield
        finally:
            WAITS_IN.reset(token)

    def now_s(self) -> float:
        """Return seconds, as `loop.time`."""
        loop = asyncio.get_running_loop()
        if WAITS_IN.get() is Time.REAL:
            return loop.time()
        with self.used():
            return loop.time()

    def monotonic_s(self) -> float:
        """Return the machine's monotonic seconds, comparable between threads."""
        with self.used():
            return current_machine().monotonic_s()

    async def sleep(self, seconds: float) -> None:
        with self.used():
            await asyncio.sleep(seconds)

    def timer(self, seconds: float, callback: Callable[..., None], *args: Any) -> asyncio.TimerHandle:
        """Start a timer, as `loop.call_later`: cheaper than a timeout, for what ends a wait by itself."""
        loop = asyncio.get_running_loop()
        if WAITS_IN.get() is Time.REAL:
            return loop.call_later(seconds, callback, *args)
        with self.used():
            return loop.call_later(seconds, callback, *args)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        return self.timeout_at(None if seconds is None else self.now_s() + seconds)

    def timeout_at(self, when: float | None) -> asyncio.Timeout:
        """As `asyncio.timeout_at`; `when` in the seconds of `now_s`."""
        return asyncio.timeout_at(when) if WAITS_IN.get() is Time.REAL else _Timeout(when, self)

    async def wait(
        self, futures: Iterable[Waited], *, timeout: float | None, return_when: str = asyncio.ALL_COMPLETED
    ) -> tuple[set[Waited], set[Waited]]:
        with self.used():
            return await asyncio.wait(futures, timeout=timeout, return_when=return_when)


class _Timeout(asyncio.Timeout):  # type: ignore[misc] # final to type checkers; only its timer differs
    def __init__(self, when: float | None, clock: Clock) -> None:
        super().__init__(when)
        self._clock = clock

    def reschedule(self, when: float | None) -> None:
        with self._clock.used():
            super().reschedule(when)


REAL_TIME: Final = Clock(Time.REAL)
"""Waits for other processes, and those that end the app: clients, reading tables, draining."""
APP_TIME: Final = Clock(Time.APP)
"""Waits of an app: commit interval, batch windows, handler deadlines, outbox intervals."""
