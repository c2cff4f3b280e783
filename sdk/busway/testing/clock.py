"""How time passes for an app under test.

What lives here: waits between attempts that are skipped (`SkippedTime`), and waits that end when the test says so (`ManualTime`). What does
not: moving the time of an event loop (`standing`).
"""

import asyncio
from typing import Literal, Protocol, TypeAlias

from busway.net.machine import OS
from busway.testing.standing import StandingTime, time_of_loop

ClockName: TypeAlias = Literal["skip", "manual"]


class Clock(Protocol):
    """What time is for an app while a test runs."""

    waited_s: list[float]
    """The waits between attempts that were asked for, in their order."""

    async def sleep(self, seconds: float) -> None:
        """Wait so long between two attempts; what `App.sleep` is."""

    async def patience(self, seconds: float) -> None:
        """Returns after so many seconds of whoever runs the test."""

    def stir(self) -> None:
        """The app has done something."""

    def begin(self) -> None:
        """The app runs, the test begins."""


class SkippedTime:
    """No wait between attempts takes any time; all other time is the loop's: real, unless another test bus has it stand still."""

    def __init__(self) -> None:
        self.waited_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        """Returns at once, after others had their turn."""
        self.waited_s.append(seconds)
        await asyncio.sleep(0)

    async def patience(self, seconds: float) -> None:
        """As `Clock.patience`."""
        time = time_of_loop()
        await (asyncio.sleep(seconds) if time is None else time.patience(seconds))

    def stir(self) -> None:
        """As `Clock.stir`."""

    def begin(self) -> None:
        """As `Clock.begin`."""


class ManualTime:
    """Time stands still but for `advance`.

    Attributes:
        time: of the event loop.
        stirred: set whenever a wait between attempts begins; who waits clears it.
    """

    def __init__(self, time: StandingTime) -> None:
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
        return round(self.time.now_s - self._began_s, 9)

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
            await asyncio.sleep(seconds)
        finally:
            self._due.remove(due_s)
        self.time.awaits_reaction_since_s = OS.monotonic_s()

    def stir(self) -> None:
        """The wait that ended last has led to something."""
        self.time.awaits_reaction_since_s = None

    async def patience(self, seconds: float) -> None:
        """As `Clock.patience`."""
        await self.time.patience(seconds)

    async def advance(self, seconds: float) -> None:
        """As `StandingTime.advance`."""
        await self.time.advance(seconds)
