"""A call that many need at once, made for all of them together.

Here: one call under way, whose result and failure are shared.
Not here: the calls (creation of an internal topic, reservation of producer ids).
"""

import asyncio
from collections.abc import Awaitable, Callable


class SharedCall:
    """Makes a call, once for all who wait for it: with a controller out of reach each would wait for those before it."""

    def __init__(self, call: Callable[[], Awaitable[None]]) -> None:
        self._call = call
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> "asyncio.Task[None]":
        """Return the call that is under way; start one if there is none."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._made())
            self._task.add_done_callback(self._over)
        return self._task

    async def made(self) -> None:
        """Wait for a call; it goes on if this caller is cancelled. Raises what the call raises."""
        await asyncio.shield(self.begin())

    async def _made(self) -> None:
        await self._call()

    def _over(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # asyncio logs an exception that is never retrieved
