"""How an app under test waits between attempts.

What lives here: waits that are skipped, and waits that the test lets pass. What does not: real time; sockets and timeouts keep that.
"""

import asyncio
import heapq
import itertools
from typing import Final, Literal, Protocol, TypeAlias

ClockName: TypeAlias = Literal["skip", "manual"]
REACT_S: Final = 20.0
"""How long the app may take to do something after a wait has ended."""


class Clock(Protocol):
    """What `App.sleep` is while a test runs."""

    waited_s: list[float]
    """The waits that were asked for, in their order."""

    async def sleep(self, seconds: float) -> None:
        """Wait so long."""


class SkippedTime:
    """No wait takes any time."""

    def __init__(self) -> None:
        self.waited_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        """Returns at once, after others had their turn."""
        self.waited_s.append(seconds)
        await asyncio.sleep(0)


class ManualTime:
    """Time stands still but for `advance`.

    Attributes:
        now_s: seconds since the beginning.
        stirred: set whenever a wait begins; others set it for what else the app does.
    """

    def __init__(self) -> None:
        self.waited_s: list[float] = []
        self.now_s = 0.0
        self.stirred = asyncio.Event()
        self._waits: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    @property
    def due_s(self) -> tuple[float, ...]:
        """When the waits end that are under way, soonest first."""
        return tuple(due for due, _, wait in sorted(self._waits, key=lambda one: one[:2]) if not wait.done())

    async def sleep(self, seconds: float) -> None:
        """Returns when so much time was let pass."""
        self.waited_s.append(seconds)
        wait: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waits, (self.now_s + seconds, next(self._numbers), wait))
        self.stirred.set()
        await wait

    async def advance(self, seconds: float) -> None:
        """Let time pass: waits end in their order, each when the app has reacted to the one before; new ones may end, too.

        Raises:
            AssertionError: the app did not react to the end of a wait.
        """
        until_s = self.now_s + seconds
        while self._waits and self._waits[0][0] <= until_s:
            due, _, wait = heapq.heappop(self._waits)
            self.now_s = due
            if wait.done():
                continue  # cancelled: its partition went
            self.stirred.clear()
            wait.set_result(None)
            try:
                async with asyncio.timeout(REACT_S):
                    await self.stirred.wait()
            except TimeoutError:
                raise AssertionError(f"the wait that ended at {due:g} s led to nothing within {REACT_S:g} s") from None
        self.now_s = until_s
