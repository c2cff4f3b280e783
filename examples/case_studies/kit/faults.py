"""Killing the parts of a demo one after the other while its load goes on.

Here: whose turn it is, and when.
Not here: killing and starting again (`parts`, `postgres`), the load (`load`).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from kit.summary import Summary

E = TypeVar("E")


class Victim(Protocol):
    """A part that can be killed and comes back, such as `Part`."""

    @property
    def name(self) -> str:
        """In the summary."""

    async def kill_and_restart(self) -> None:
        """Returns when it is ready again."""


class KillsInTurn:
    """Kills each part once, spread over a load: the first of three when a quarter of it was sent, then at the half, then at three quarters.

    The load goes on while a part is away. It is held up only where the next turn comes before that part is back, so that each is killed
    under load however fast the machine is, and no two are away at once. `async with` ends when all that were killed are back.

    Args:
        victims: in their order; none for a demo without disturbance.
    """

    def __init__(self, victims: Sequence[Victim]) -> None:
        self._names = [victim.name for victim in victims]
        self._left = deque(zip(self.turns, victims, strict=True))
        self._restarting: asyncio.Task[None] | None = None
        self.killed: list[str] = []
        """The names of those whose turn has come."""

    @property
    def turns(self) -> list[float]:
        """After which share of the load each is killed, from 0 to 1."""
        return [number / (len(self._names) + 1) for number in range(1, len(self._names) + 1)]

    async def passed(self, share: float) -> None:
        """So much of the load was sent: kill the next one if it is its turn, as soon as the one before is back.

        Raises:
            DemoFailed: a part did not start again.
        """
        while self._left and share >= self._left[0][0]:
            await self._back()
            _, victim = self._left.popleft()
            self.killed.append(victim.name)
            self._restarting = asyncio.ensure_future(victim.kill_and_restart())

    def during(
        self, send: "Callable[[E], Awaitable[asyncio.Future[Any]]]", total: int
    ) -> "Callable[[E], Awaitable[asyncio.Future[Any]]]":
        """`send` for a load of so many events, with the turns in between; for `load.send_all`."""
        sent = 0

        async def send_and_kill(event: E) -> "asyncio.Future[Any]":
            nonlocal sent
            await self.passed(sent / total)
            sent += 1
            return await send(event)

        return send_and_kill

    async def _back(self) -> None:
        restarting, self._restarting = self._restarting, None
        if restarting is not None:
            await restarting

    async def __aenter__(self) -> "KillsInTurn":
        return self

    async def __aexit__(self, kind: object, problem: object, trace: object) -> None:
        if problem is not None and self._restarting is not None:
            # No process is left half started; what is wrong with it is not what went wrong first.
            await asyncio.gather(self._restarting, return_exceptions=True)
        else:
            await self._back()

    def tell(self, summary: Summary) -> None:
        """A line of the summary: each was killed, once, while the load went on."""
        if self._names:
            names = ", ".join(self._names)
            summary.figure("killed under load", ", ".join(self.killed), must_be=names)
