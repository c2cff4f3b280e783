"""Whose turn it is with the rows of a partition.

What lives here: `RowLocks`: which calls of handlers run at once, and which wait. What does not: what they do with the rows (`table`).

A call is for one key or for the whole partition. No two calls for one key run at once, and one for the whole partition runs alone. Each
waits only for calls that came before it, so calls never wait for each other; nor do they with two tables, as every call comes to the
tables of its app in the same order.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable
from typing import Final

from busway.app.calling.depends import current

WHOLE: Final = object()
"""The key of a call that is for the whole partition."""


class RowLocks:
    """The calls for the rows of one partition: those that run, and those that wait, in the order in which they came."""

    def __init__(self) -> None:
        self._running: set[Hashable] = set()
        self._waiting: dict[asyncio.Future[None], Hashable] = {}

    @contextlib.asynccontextmanager
    async def turn(self, key: Hashable) -> AsyncIterator[None]:
        """Entered when no call that came before and is for the same rows runs any more; a call's deadline stands still meanwhile.

        Args:
            key: whose rows the call is for, or `WHOLE`.
        """
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[mine] = key
        self._begin()
        try:
            if not mine.done():
                with current.get().untimed():
                    await mine
            yield
        finally:
            if self._waiting.pop(mine, None) is None:
                self._running.discard(key)
            self._begin()

    def _begin(self) -> None:
        """Let those run that are for other rows than all that run; nobody overtakes one that is for all of them."""
        for mine, key in list(self._waiting.items()):
            if mine.cancelled():
                continue
            if not (self._running if key is WHOLE else self._running & {key, WHOLE}):
                del self._waiting[mine]
                self._running.add(key)
                mine.set_result(None)
            if key is WHOLE:
                return
