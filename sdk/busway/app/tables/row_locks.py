"""Locks of the rows of a partition.

Here: which calls of handlers run at once, and which wait.
Not here: their changes (`table`).

A call locks one key or the whole partition. Each waits only for earlier calls, and reaches the tables of its app in one
order, so calls cannot deadlock.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable
from typing import Final

from busway.app.calling.depends import current

WHOLE: Final = object()
"""Key of a call that locks the whole partition."""


class RowLocks:
    """Calls for the rows of one partition: running ones and, in FIFO order, waiting ones."""

    def __init__(self) -> None:
        self._running: set[Hashable] = set()
        self._waiting: dict[asyncio.Future[None], Hashable] = {}

    @contextlib.asynccontextmanager
    async def turn(self, key: Hashable) -> AsyncIterator[None]:
        """Lock the rows of `key`, or `WHOLE`; the call's deadline is suspended while it waits."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = key
        self._begin()
        try:
            if not waiter.done():
                with current.get().untimed():
                    await waiter
            yield
        finally:
            if self._waiting.pop(waiter, None) is None:
                self._running.discard(key)
            self._begin()

    def _begin(self) -> None:
        """Start waiting calls without a conflict; none overtakes one that locks the whole partition."""
        for waiter, key in list(self._waiting.items()):
            if waiter.cancelled():
                continue
            if not (self._running if key is WHOLE else self._running & {key, WHOLE}):
                del self._waiting[waiter]
                self._running.add(key)
                waiter.set_result(None)
            if key is WHOLE:
                return
