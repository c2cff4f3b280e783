"""The app's time under test.

Here: skipped waits between attempts, and time that only the test advances.
Not here: the two clocks of an event loop (`frozen_time`).
"""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Protocol, TypeAlias

from busway.testing.frozen_time import FrozenTime

ClockName: TypeAlias = Literal["skip", "manual"]


class Clock(Protocol):
    """The clock of an app under test."""

    waited_s: list[float]
    """Waits between attempts, in order."""

    async def sleep(self, seconds: float) -> None:
        """Wait between two attempts; replaces `App.sleep`."""

    def starting(self) -> AbstractContextManager[None]:
        """Start the app within. Its time passes, and tasks created are the app's."""

    def passing(self) -> AbstractContextManager[None]:
        """Run the app's time in real time."""

    def note_activity(self) -> None:
        """Note that the app has done something."""

    def begin(self) -> None:
        """Begin the test; the app runs."""

    def standing(self) -> str:
        """Return a hint for timeout messages that time may have to advance."""


class SkippedTime:
    """A clock that skips waits between attempts; all other time is real."""

    def __init__(self) -> None:
        self.waited_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waited_s.append(seconds)
        await asyncio.sleep(0)

    def starting(self) -> AbstractContextManager[None]:
        return nullcontext()

    def passing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def note_activity(self) -> None:
        """As `Clock.note_activity`."""

    def begin(self) -> None:
        """As `Clock.begin`."""

    def standing(self) -> str:
        return ""


class ManualTime:
    """A clock that only `advance` moves; `stirred` is set when a wait between attempts begins, and cleared by the
    waiter.
    """

    def __init__(self, time: FrozenTime) -> None:
        self.waited_s: list[float] = []
        self.time = time
        self.stirred: asyncio.Event = asyncio.Event()
        self._began_s = time.now_s
        self._due: list[float] = []

    def begin(self) -> None:
        """Count from the next whole second, so that sums are round numbers."""
        self._began_s = self.time.even()

    @property
    def now_s(self) -> float:
        """Seconds since `begin`."""
        return round(self.time.now_s - self._began_s, 6)

    @property
    def due_s(self) -> tuple[float, ...]:
        return tuple(sorted(self._due))

    async def sleep(self, seconds: float) -> None:
        self.waited_s.append(seconds)
        due_s = self.now_s + seconds
        self._due.append(due_s)
        self.note_activity()
        self.stirred.set()
        try:
            await self.time.sleep(seconds)
        finally:
            self._due.remove(due_s)
        self.time.awaits_reaction = True

    def starting(self) -> AbstractContextManager[None]:
        return self.time.starting()

    def passing(self) -> AbstractContextManager[None]:
        return self.time.passing()

    def note_activity(self) -> None:
        """Note that the last wait's end led to something."""
        self.time.awaits_reaction = False

    def standing(self) -> str:
        left_s = self.time.left_s()
        return "" if left_s is None else f"; time stands: await bus.advance({left_s:.3g}) ends the app's next wait"

    async def advance(self, seconds: float) -> None:
        await self.time.advance(seconds)
