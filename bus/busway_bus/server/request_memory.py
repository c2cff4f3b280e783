"""Bound on all received requests, whole or partial, until they are handled.

Here: the count, the queue for room.
Not here: closing slow connections (`listener`). A connection without room is not read from, as in Kafka. Unlike there,
a frame counts by its arrived bytes. One connection at a time may exceed the limit: otherwise partial frames could wait
for each other.
"""

from collections.abc import Callable
from typing import Final

from busway_bus.kernel.limits import REQUEST_BYTES_FREE, REQUEST_BYTES_LARGE

_SMALL_SHARE: Final = 3
"""A third of the memory is reserved for small requests."""

_RESUME_BYTES: Final = 64 * 1024
"""Freed bytes per waiting connection that is resumed."""


class Room:
    """Memory for requests of one size class.

    Attributes:
        limit: in bytes.
        used: in bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._turn: ConnectionQuota | None = None
        self._line: dict[ConnectionQuota, None] = {}

    @property
    def contended(self) -> bool:
        return bool(self._line)

    def has_room(self, quota: "ConnectionQuota") -> bool:
        return self.used < self.limit or quota is self._turn

    def admits(self, quota: "ConnectionQuota") -> bool:
        """Check that a connection may read, else queue it."""
        if self.has_room(quota):
            return True
        if self._turn is None:
            self._turn = quota
            self._line.pop(quota, None)
            return True
        self._line[quota] = None
        return False

    def changed(self, by: int) -> None:
        self.used += by
        if by < 0:
            self._resume_next()

    def left(self, quota: "ConnectionQuota") -> None:
        self._line.pop(quota, None)
        if self._turn is quota:
            self._turn = None
            self._resume_next()

    def _resume_next(self) -> None:
        free = self.limit - self.used
        while self._line and (free > 0 or self._turn is None):
            quota = next(iter(self._line))
            del self._line[quota]
            if free <= 0:
                self._turn = quota
            free -= _RESUME_BYTES
            quota.resume()


class RequestMemory:
    """The rooms of a node.

    Args:
        limit: bytes of both.
    """

    def __init__(self, limit: int) -> None:
        self.small = Room(limit // _SMALL_SHARE)
        self.large = Room(limit - limit // _SMALL_SHARE)

    @property
    def open(self) -> bool:
        return self.small.used < self.small.limit and self.large.used < self.large.limit


class ConnectionQuota:
    """The requests of one connection.

    A little memory is free: small requests are always read.

    Args:
        resume: called when a queued connection may continue to read.
    """

    __slots__ = ("_counted", "_held", "_memory", "_room", "resume")

    def __init__(self, memory: RequestMemory, resume: Callable[[], None]) -> None:
        self._memory = memory
        self._room: Room | None = None
        self._held = 0
        self._counted = 0
        self.resume = resume

    def update(self, held: int, largest: int) -> None:
        if held == self._held == 0:
            return
        room = None
        if held >= REQUEST_BYTES_FREE:
            room = self._memory.large if largest > REQUEST_BYTES_LARGE else self._memory.small
        self._held = held
        before, self._room = self._room, room
        counted, self._counted = self._counted, held if room is not None else 0
        if before is room:
            if room is not None:
                room.changed(self._counted - counted)
            return
        if room is not None:
            room.changed(self._counted)
        if before is not None:
            before.changed(-counted)
            before.left(self)

    @property
    def contended(self) -> bool:
        return self._room is not None and self._room.contended

    def may_read(self) -> bool:
        """Whether to read more; if not, `resume` is called later."""
        return self._room is None or self._room.admits(self)

    def allowance(self, bytes_wanted: int) -> int:
        """Return the bytes to read at once: few without room, never none."""
        if self._room is None:
            return bytes_wanted if self._memory.open else min(bytes_wanted, REQUEST_BYTES_FREE - self._held)
        return bytes_wanted if self._room.has_room(self) else min(bytes_wanted, REQUEST_BYTES_FREE)
