"""From the connector's thread, which blocks, to the event loop, which must not: records in order, bounded in number and in bytes.

What lives here: the queue between both. What does not: what is in it.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from busway_connect.connector import SourceRecord

_RECORD_BYTES: Final = 100
"""What a record counts beside its values; without it, a queue of empty rows would count as empty."""
_VALUE_BYTES: Final = 8


class Stopped(Exception):
    """The reader has gone; raised in the thread."""


def size_of(record: SourceRecord) -> int:
    """Bytes of a change, roughly: its texts and bytes by their length, all else by the piece."""
    rows = (record.value.get("before"), record.value.get("after")) if isinstance(record.value, dict) else ()
    return _RECORD_BYTES + sum(_size(row) for row in (record.key, *rows))


def _size(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return _VALUE_BYTES


class Handover:
    """A queue with two bounds, from one thread to one event loop.

    Args:
        limit: records that wait at most, give or take one `put`; then `put` waits.
        limit_bytes: their size at most (`size_of`), likewise; 0 for no bound.
    """

    def __init__(self, limit: int, limit_bytes: int) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._room = threading.Condition()
        self._records: deque[tuple[SourceRecord, int]] = deque()
        self._bytes = 0
        self._problem: BaseException | None = None
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether the thread is to end."""
        return self._stopped

    @property
    def waiting(self) -> int:
        """Count the records that are not yet read."""
        return len(self._records)

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is no reader
            self._loop.call_soon_threadsafe(self._arrived.set)

    def put(self, records: Sequence[tuple[SourceRecord, int]], every_s: float, meanwhile: Callable[[], None]) -> None:
        """Hand over, each with its size; in the thread. Waits for room, and calls `meanwhile` that often while it does.

        Raises:
            Stopped: the reader has closed.
        """
        with self._room:
            self._records.extend(records)
            self._bytes += sum(size for _, size in records)
        self._tell()
        while True:
            with self._room:
                if self._room.wait_for(self._has_room, every_s):
                    break
            meanwhile()
        if self._stopped:
            raise Stopped

    def _has_room(self) -> bool:
        full = len(self._records) >= self._limit or 0 < self._limit_bytes <= self._bytes
        return self._stopped or not full

    def pause(self, seconds: float) -> None:
        """Sleep; in the thread.

        Raises:
            Stopped: the reader has closed.
        """
        with self._room:
            if self._room.wait_for(lambda: self._stopped, seconds):
                raise Stopped

    def fail(self, problem: BaseException) -> None:
        """End the thread with this error. The reader gets it behind the records."""
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
            taken = [self._records.popleft() for _ in range(min(most, len(self._records)))]
            self._bytes -= sum(size for _, size in taken)
            self._room.notify_all()
        if not taken and self._problem is not None:
            raise self._problem
        return [record for record, _ in taken]
