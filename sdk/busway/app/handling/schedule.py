"""Which record of a partition a handler may be given now.

What lives here: the order of keys, parked records and the bound on what runs at once, as a pure state machine. What does not: calling
handlers and waiting (`lane`), what may be committed (`completed_offsets`).

A record is *queued* until it is handed out, then *running*, perhaps *parked* until its next attempt is due, and at last finished. While a
record of a key is parked, or runs beside others, its key is *held*: later records of that key stay *behind* it, in their order.
"""

from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from busway.app.model.topic import Ordering

_FREE: Final = object()
"""The key of records that have no order among themselves."""
T = TypeVar("T")


class Schedule(Generic[T]):
    """The records of one partition for one handler.

    Args:
        ordering: "key": records of a key one after the other, never reordered; "partition": all of them; "none": no order.
        concurrency: how many run at once. With more than one, records without a key have no order among themselves.
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
        """Records that may run as soon as there is room, without those that stay behind their key."""
        return len(self._queued) + len(self._due)

    @property
    def running(self) -> int:
        """Records that are being handled."""
        return self._running

    @property
    def parked(self) -> int:
        """Records that wait for their next attempt."""
        return self._parked

    @property
    def open(self) -> int:
        """All records that are not finished."""
        return self.queued + self._held_back + self._running + self._parked

    def add(self, key: bytes | None, item: T) -> None:
        """The next record of the partition."""
        self._queued.append((self._key(key), item))

    def _key(self, key: bytes | None) -> Hashable:
        if self._ordering == "partition":
            return None
        if self._ordering == "none" or (key is None and self._concurrency > 1):
            return _FREE
        return key

    def next(self) -> tuple[Hashable, T] | None:
        """A record to run now, with the key to name it by; None if there is none, or no room."""
        if self._running >= self._concurrency:
            return None
        if self._due:
            self._running += 1
            return self._due.popleft()
        while self._queued:
            found = self._queued.popleft()
            key, item = found
            if self._behind and (behind := self._behind.get(key)) is not None:
                behind.append(item)
                self._held_back += 1
                continue
            if self._concurrency > 1 and key is not _FREE:
                self._behind[key] = deque()
            self._running += 1
            return found
        return None

    def park(self, key: Hashable) -> None:
        """A running record waits for its next attempt: it leaves its room to others and holds its key."""
        self._running -= 1
        self._parked += 1
        if key is not _FREE:
            self._behind.setdefault(key, deque())

    def due(self, key: Hashable, item: T) -> None:
        """A parked record may run again, before what is queued."""
        self._parked -= 1
        self._due.append((key, item))

    def finish(self, key: Hashable) -> None:
        """A running record is done: the next of its key may run."""
        self._running -= 1
        if self._behind and (behind := self._behind.get(key)) is not None:
            if behind:
                self._held_back -= 1
                self._due.append((key, behind.popleft()))
            else:
                del self._behind[key]
