"""Killing parts on request while a load goes on, and what came of it.

Here: one kill of a part at a time, how long it was away, a log of events.
Not here: kills in turn (`faults`), who asks for one (`cockpit`).
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from kit.parts import DemoFailed, Part

EVENTS_KEPT: Final = 40
NODE_AWAY_S: Final = 4.0
"""A killed node of several stays away so long: others lead meanwhile."""


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the page; `kind` is killed, back or note."""

    at_ms: int
    kind: str
    text: str


class Busy(Exception):
    """A part that is being restarted cannot be killed."""


@dataclass(frozen=True, slots=True)
class Target:
    """A part that can be killed.

    Attributes:
        name: of the button.
        away_s: how long it stays away.
        after: called after the kill with the time of it on the monotonic clock; returns a note.
    """

    name: str
    part: Part
    away_s: float = 0.0
    after: Callable[[float], Awaitable[str | None]] | None = None

    async def kill_and_restart(self) -> None:
        """Kill it and start it again, without a note."""
        await self.part.kill_and_restart(self.away_s)


class Kills:
    """Kills the targets, each when it runs.

    Args:
        changed: called after each event.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self.targets: dict[str, Target] = {}
        self.aliases: dict[str, Callable[[], str]] = {}
        """Further names of targets that change: the leader's."""
        self.events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self.counts: dict[str, int] = {}
        self.problem: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails when a part does not start again."""
        self._changed = changed
        self._running: set[asyncio.Task[None]] = set()

    def add(self, target: Target) -> None:
        self.targets[target.name] = target

    def note(self, kind: str, text: str) -> None:
        """Append a line to the log."""
        self.events.append(Event(int(time.time() * 1000), kind, text))
        self._changed()

    def kill(self, name: str) -> None:
        """Begin a kill.

        Raises:
            KeyError: there is no such part.
            Busy: it is away already.
        """
        target = self.targets[self.aliases[name]() if name in self.aliases else name]
        if target.part.restarting:
            raise Busy(f"{name} is being started again")
        target.part.restarting = True
        task = asyncio.ensure_future(self._kill(target))
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None and not self.problem.done():
            self.problem.set_exception(problem)

    async def _kill(self, target: Target) -> None:
        begun = time.monotonic()
        self.counts[target.name] = self.counts.get(target.name, 0) + 1
        self.note("killed", f"{target.name}: kill -9")
        noting = asyncio.ensure_future(self._note(target, begun))
        try:
            await target.kill_and_restart()
            self.note("back", f"{target.name} is back after {time.monotonic() - begun:.1f} s")
            await noting
        finally:
            noting.cancel()
            await asyncio.wait([noting])

    async def _note(self, target: Target, begun: float) -> None:
        if target.after is not None and (text := await target.after(begun)) is not None:
            self.note("note", text)

    async def settled(self) -> None:
        """Return when nothing is away.

        Raises:
            DemoFailed: a part did not start again.
        """
        while self._running:
            await asyncio.wait(self._running)
            await asyncio.sleep(0)
        if self.problem.done() and not self.problem.cancelled():
            problem = self.problem.exception()
            if isinstance(problem, DemoFailed):
                raise problem

    async def stop(self) -> None:
        """End without waiting for parts."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        if not self.problem.done():
            self.problem.cancel()
        elif not self.problem.cancelled():
            self.problem.exception()
