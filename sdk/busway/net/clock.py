"""The clock of an event loop, and which of a loop's two clocks a wait takes its time from.

What lives here: `WAITS_IN`, which says for a task whose time asyncio's waits take, and `REAL_TIME` and `APP_TIME`, through which Busway's own
code waits. What does not: the loop that keeps two clocks (`busway.testing.frozen_time`), a process' machine (`machine`).

Under `app.test(clock="manual")` the tasks of the app run with `WAITS_IN` set to `Time.USER`: whatever they await by asyncio takes frozen
time. The SDK's clients wait by `REAL_TIME`, so brokers and registries are reached although an app's time is frozen; the app's own waits use
`APP_TIME`. Without a frozen clock, both are asyncio's own functions. `tests/tidy` checks that their modules do
not wait by asyncio itself.
"""

import asyncio
import contextlib
import enum
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from busway.net.machine import current_machine

Waited = TypeVar("Waited", bound="asyncio.Future[Any]")


class Time(enum.Enum):
    """Whose clock the timers of a context run on."""

    REAL = enum.auto()
    APP = enum.auto()
    """Frozen; a wait of the app's own code."""
    USER = enum.auto()
    """Frozen; a wait of a handler, a dependency, an extension, the lifespan, or a library they call."""


WAITS_IN: Final[ContextVar[Time]] = ContextVar("busway_waits_in", default=Time.REAL)
"""Whose clock asyncio's own waits use in this context; only a test with a frozen clock sets it, and tasks inherit it."""


class Clock:
    """asyncio's waits, in a named time; the loop's own time in a context that no test has frozen."""

    __slots__ = ("_time",)

    def __init__(self, time: Time) -> None:
        self._time = time

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Let asyncio's and libraries' waits within the block use this clock; tasks and connections made within keep it."""
        if WAITS_IN.get() is Time.REAL:
            yield
            return
        token = WAITS_IN.set(self._time)
        try:
            yield
        finally:
            WAITS_IN.reset(token)

    def now_s(self) -> float:
        """Seconds, as `loop.time`."""
        loop = asyncio.get_running_loop()
        if WAITS_IN.get() is Time.REAL:
            return loop.time()
        with self.used():
            return loop.time()

    def monotonic_s(self) -> float:
        """Seconds, as the machine's clock that only grows; comparable between threads."""
        with self.used():
            return current_machine().monotonic_s()

    async def sleep(self, seconds: float) -> None:
        """As `asyncio.sleep`."""
        with self.used():
            await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """As `asyncio.timeout`."""
        return self.timeout_at(None if seconds is None else self.now_s() + seconds)

    def timeout_at(self, when: float | None) -> asyncio.Timeout:
        """As `asyncio.timeout_at`; `when` in the seconds of `now_s`."""
        return asyncio.timeout_at(when) if WAITS_IN.get() is Time.REAL else _Timeout(when, self)

    async def wait(
        self, futures: Iterable[Waited], *, timeout: float | None, return_when: str = asyncio.ALL_COMPLETED
    ) -> tuple[set[Waited], set[Waited]]:
        """As `asyncio.wait`."""
        with self.used():
            return await asyncio.wait(futures, timeout=timeout, return_when=return_when)


class _Timeout(asyncio.Timeout):  # type: ignore[misc] # final to type checkers; its one timer is all that differs
    def __init__(self, when: float | None, clock: Clock) -> None:
        super().__init__(when)
        self._clock = clock

    def reschedule(self, when: float | None) -> None:
        with self._clock.used():
            super().reschedule(when)


REAL_TIME: Final = Clock(Time.REAL)
"""Waits that bring the app to others and others to it, or end it: clients, tables that are read, a drain."""
APP_TIME: Final = Clock(Time.APP)
"""Waits of the app's own: the commit interval, windows of batches, a handler's deadline, an outbox's intervals."""
