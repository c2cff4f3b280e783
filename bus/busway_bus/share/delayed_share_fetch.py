"""The wait of a share fetch that has too few records yet.

Here: the wait for records, a time-out, or the client's disconnect.
Not here: when a fetch has enough (`fetching`).
"""

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Protocol

from busway_bus.share.partition import SharePartition


class Watch(Protocol):
    def end(self, problem: Exception) -> None:
        """Handle the dropped connection."""


class Peer(Protocol):
    """A client's connection; `end` of each of `polls` is called when it drops."""

    gone: bool
    polls: set[Any]


class Waiting:
    """The wait of one fetch. No event is missed while it is open.

    `enough`: whether a share partition may end the wait.
    """

    def __init__(self, peer: Peer, enough: Callable[[SharePartition], bool]) -> None:
        self._peer = peer
        self._enough = enough
        self._shares: dict[SharePartition, None] = {}
        self._woken = False
        self._problem: Exception | None = None
        self._future: asyncio.Future[None] | None = None

    def __enter__(self) -> "Waiting":
        self._peer.polls.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._peer.polls.discard(self)
        for share in self._shares:
            share.waiters.pop(self, None)

    def on(self, shares: Iterable[SharePartition]) -> None:
        """Wait for share partitions, behind earlier waiters."""
        for share in shares:
            self._shares[share] = None
            share.waiters[self] = None

    def look_at(self, share: SharePartition) -> None:
        if not self._woken and self._enough(share):
            self._wake()

    def end(self, problem: Exception) -> None:
        self._problem = problem
        self._wake()

    def _wake(self) -> None:
        self._woken = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, within_s: float) -> None:
        if not self._woken:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            timer = loop.call_later(within_s, self._wake)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        if self._problem is not None:
            raise self._problem
        self._woken = False
