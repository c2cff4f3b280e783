"""Which record of a partition a handler gets next.

Here: order of keys, parked records and concurrency, as a pure state machine.
Not here: calling handlers and waiting (`lane`).

A record is *queued*, *running*, perhaps *parked* until its next attempt is due, and finished. While a record of a key
is parked, or runs beside others, its key is *held*: later records of that key stay *behind* it, in order.
"""

from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from busway.app.model.topic import Ordering

_FREE: Final = object()
"""Key of records without an order among themselves."""
T = TypeVar("T")


class Schedule(Generic[T]):
    """The records of one partition for one handler.

    `ordering` "key": records of a key are never reordered; "partition": nor any others; "none": no order. With
    `concurrency` above one, records without a key are unordered.
    """

    def __init__(self, *, ordering: Ordering = "key", concurrency: int = 1) -> None:
        self._ordering = ordering
        self._concurrency = concurrency
        self._queued: deque[tuple[Hashable, T]] = deque()
        self._due: deque[tuple[Hashable, T]] = deque()
        self._behind: dict[Hashable, deque[T]] = {}
        self._held_back = 0
        self._running = 0
        self._parked = 0

    @property
    def queued(self) -> int:
        """Records that may run when there is room; those held behind their key do not count."""
        return len(self._queued) + len(self._due)

    @property
    def running(self) -> int:
        return self._running

    @property
    def parked(self) -> int:
        return self._parked

    @property
    def open(self) -> int:
        """All unfinished records."""
        return self.queued + self._held_back + self._running + self._parked

    def add(self, key: bytes | None, item: T) -> None:
        self._queued.append((self._key(key), item))

    def _key(self, key: bytes | None) -> Hashable:
        if self._ordering == "partition":
            return None
        if self._ordering == "none" or (key is None and self._concurrency > 1):
            return _FREE
        return key

    def next(self) -> tuple[Hashable, T] | None:
        """Return the key to finish by and the next record to run; None if none may run."""
        if self._running >= self._concurrency:
            return None
        if self._due:
            self._running += 1
            return self._due.popleft()
        while self._queued:
            entry = self._queued.popleft()
            key, item = entry
            if self._behind and (behind := self._behind.get(key)) is not None:
                behind.append(item)
                self._held_back += 1
                continue
            if self._concurrency > 1 and key is not _FREE:
                self._behind[key] = deque()
            self._running += 1
            return entry
        return None

    def park(self, key: Hashable) -> None:
        """Park a running record until its next attempt: it frees its slot and holds its key."""
        self._running -= 1
        self._parked += 1
        if key is not _FREE:
            self._behind.setdefault(key, deque())

    def due(self, key: Hashable, item: T) -> None:
        self._parked -= 1
        self._due.append((key, item))

    def finish(self, key: Hashable) -> None:
        self._running -= 1
        if self._behind and (behind := self._behind.get(key)) is not None:
            if behind:
                self._held_back -= 1
                self._due.append((key, behind.popleft()))
            else:
                del self._behind[key]
