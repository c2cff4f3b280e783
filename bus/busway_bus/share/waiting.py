"""A fetch of a share group that has not enough yet, and waits.

What lives here: the wait, for records of any of its share partitions, for the end of its time, or for its client to go. What does not:
what is enough (`fetching`).
"""

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Protocol

from busway_bus.share.partition import SharePartition


class Watch(Protocol):
    """Is ended when a connection drops."""

    def end(self, problem: Exception) -> None:
        """It has."""


class Peer(Protocol):
    """Whether the client of a connection still waits for answers.

    Attributes:
        polls: are ended when it does not any more.
    """

    gone: bool
    polls: set[Any]


class Waiting:
    """One fetch's wait; nothing that comes while it is open is missed.

    Args:
        enough: whether a share partition may have ended the wait.
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
        """Wait for these, behind who waits for them already."""
        for share in shares:
            self._shares[share] = None
            share.waiters[self] = None

    def look_at(self, share: SharePartition) -> None:
        """There may be records, or it is gone."""
        if not self._woken and self._enough(share):
            self._wake()

    def end(self, problem: Exception) -> None:
        """The client is gone."""
        self._problem = problem
        self._wake()

    def _wake(self) -> None:
        self._woken = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, within_s: float) -> None:
        """Return when there may be something, or the time is over; with nobody to wait for, when that is over.

        Raises:
            Exception: what the wait was ended with: the client is gone.
        """
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
