"""From the connector's thread, which blocks, to the event loop, which must not: records in order, a bounded number of them.

What lives here: the queue between both. What does not: what is in it.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from itertools import islice

from busway_connect.connector import SourceRecord


class Stopped(Exception):
    """The reader has gone; raised in the thread."""


class Handover:
    """A queue with a bound, from one thread to one event loop.

    Args:
        limit: records that wait at most, give or take one batch; then `put` waits.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._room = threading.Condition()
        self._records: deque[SourceRecord] = deque()
        self._problem: BaseException | None = None
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether the thread is to end."""
        return self._stopped

    @property
    def waiting(self) -> int:
        """Records that nobody has read yet."""
        return len(self._records)

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody reads any more
            self._loop.call_soon_threadsafe(self._arrived.set)

    def put(self, records: list[SourceRecord], every_s: float, meanwhile: Callable[[], None]) -> None:
        """Hand over; in the thread. Waits for room, and calls `meanwhile` that often while it does.

        Raises:
            Stopped: nobody reads any more.
        """
        with self._room:
            self._records.extend(records)
        self._tell()
        while True:
            with self._room:
                if self._stopped:
                    raise Stopped
                if len(self._records) < self._limit or self._room.wait_for(self._has_room, every_s):
                    return
            meanwhile()

    def _has_room(self) -> bool:
        return self._stopped or len(self._records) < self._limit

    def fail(self, problem: BaseException) -> None:
        """The thread ends with this error; whoever reads gets it behind the records."""
        self._problem = problem
        self._tell()

    def stop(self) -> None:
        """Let the thread end."""
        with self._room:
            self._stopped = True
            self._room.notify_all()

    async def take(self, most: int, wait_s: float) -> list[SourceRecord]:
        """The next records, at most so many; waits for the first, but no longer than this.

        Raises:
            Exception: what `fail` was given.
        """
        if not self._records and self._problem is None:
            self._arrived.clear()
            if not self._records and self._problem is None:
                try:
                    async with asyncio.timeout(wait_s):
                        await self._arrived.wait()
                except TimeoutError:
                    return []
        with self._room:
            taken = list(islice(self._records, most))
            for _ in taken:
                self._records.popleft()
            self._room.notify_all()
        if not taken and self._problem is not None:
            raise self._problem
        return taken
