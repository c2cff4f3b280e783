"""How time passes for an app under test.

What lives here: waits between attempts that are skipped (`SkippedTime`), and time that stands until the test lets it pass (`ManualTime`).
What does not: the two times of an event loop (`frozen_time`).
"""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Protocol, TypeAlias

from busway.testing.frozen_time import FrozenTime

ClockName: TypeAlias = Literal["skip", "manual"]


class Clock(Protocol):
    """What time is for an app while a test runs."""

    waited_s: list[float]
    """The waits between attempts that were asked for, in their order."""

    async def sleep(self, seconds: float) -> None:
        """Wait so long between two attempts; what `App.sleep` is."""

    def starting(self) -> AbstractContextManager[None]:
        """Within, the app is started: its time passes, and what it begins is its own."""

    def passing(self) -> AbstractContextManager[None]:
        """Within, the app's time passes."""

    def stir(self) -> None:
        """The app has done something."""

    def begin(self) -> None:
        """The app runs, the test begins."""

    def standing(self) -> str:
        """What to add when the app has not done something in time: it may wait for time to pass."""


class SkippedTime:
    """No wait between attempts takes any time; all other time is real."""

    def __init__(self) -> None:
        self.waited_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        """Returns at once, after others had their turn."""
        self.waited_s.append(seconds)
        await asyncio.sleep(0)

    def starting(self) -> AbstractContextManager[None]:
        """As `Clock.starting`."""
        return nullcontext()

    def passing(self) -> AbstractContextManager[None]:
        """As `Clock.passing`."""
        return nullcontext()

    def stir(self) -> None:
        """As `Clock.stir`."""

    def begin(self) -> None:
        """As `Clock.begin`."""

    def standing(self) -> str:
        """As `Clock.standing`."""
        return ""


class ManualTime:
    """The app's time stands still but for `advance`.

    Attributes:
        time: of the event loop.
        stirred: set whenever a wait between attempts begins; who waits clears it.
    """

    def __init__(self, time: FrozenTime) -> None:
        self.waited_s: list[float] = []
        self.time = time
        self.stirred = asyncio.Event()
        self._began_s = time.now_s
        self._due: list[float] = []

    def begin(self) -> None:
        """Count from the next whole second, so that sums come out even."""
        self._began_s = self.time.even()

    @property
    def now_s(self) -> float:
        """Seconds since the beginning."""
        return round(self.time.now_s - self._began_s, 6)

    @property
    def due_s(self) -> tuple[float, ...]:
        """When the waits between attempts end that are under way, soonest first."""
        return tuple(sorted(self._due))

    async def sleep(self, seconds: float) -> None:
        """Returns when so much time was let pass."""
        self.waited_s.append(seconds)
        due_s = self.now_s + seconds
        self._due.append(due_s)
        self.stir()
        self.stirred.set()
        try:
            await self.time.sleep(seconds)
        finally:
            self._due.remove(due_s)
        self.time.awaits_reaction = True

    def starting(self) -> AbstractContextManager[None]:
        """As `Clock.starting`."""
        return self.time.starting()

    def passing(self) -> AbstractContextManager[None]:
        """As `Clock.passing`."""
        return self.time.passing()

    def stir(self) -> None:
        """The wait that ended last has led to something."""
        self.time.awaits_reaction = False

    def standing(self) -> str:
        """As `Clock.standing`."""
        left_s = self.time.left_s()
        return "" if left_s is None else f"; time stands: await bus.advance({left_s:.3g}) ends the app's next wait"

    async def advance(self, seconds: float) -> None:
        """As `FrozenTime.advance`."""
        await self.time.advance(seconds)
