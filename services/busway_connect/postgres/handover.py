"""A bounded queue from the connector's blocking thread to the event loop.

Here: limits in records and bytes.
Not here: its contents.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from busway_connect.connector import SourceRecord

_RECORD_BYTES: Final = 100
"""Size of a record beside its values, so that empty rows count."""
_VALUE_BYTES: Final = 8


class Stopped(Exception):
    """The reader is gone; raised in the thread."""


def size_of(record: SourceRecord) -> int:
    """Estimate a change's bytes: texts by length, others a constant."""
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
    """A queue with two limits, from one thread to one event loop.

    Args:
        limit: of waiting records, exceeded by at most one `put`; then `put` waits.
        limit_bytes: of their size (`size_of`), likewise; 0 for none.
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
        return self._stopped

    @property
    def waiting(self) -> int:
        return len(self._records)

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, without a reader
            self._loop.call_soon_threadsafe(self._arrived.set)

    def put(self, records: Sequence[tuple[SourceRecord, int]], every_s: float, meanwhile: Callable[[], None]) -> None:
        """Add records with their sizes; called in the thread. Waits for room, calling `meanwhile` at that interval.

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
        """Sleep; called in the thread. Raises `Stopped` if the reader has closed."""
        with self._room:
            if self._room.wait_for(lambda: self._stopped, seconds):
                raise Stopped

    def fail(self, problem: BaseException) -> None:
        """End the thread with this error, which the reader gets after the records."""
        self._problem = problem
        self._tell()

    def stop(self) -> None:
        with self._room:
            self._stopped = True
            self._room.notify_all()

    async def take(self, most: int, wait_s: float) -> list[SourceRecord]:
        """Return the next records up to a limit; wait for the first up to a timeout.

        Raises:
            Exception: the error of `fail`.
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
