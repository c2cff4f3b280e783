"""How much all connections together may hold of requests that have come, wholly or in part, and are not worked on yet.

What lives here: the count, and whose turn it is where there is no room. What does not: sockets (`connection`), and who is too slow
to keep what it holds (`listener`). As in Kafka, a connection without room is not read from until there is some. Unlike there a
frame is counted by what has arrived of it, not by what was announced, so that announcing costs nobody anything; for the price of a
rule that keeps half-read frames from waiting for each other: one connection at a time may go on without room.
"""

from collections.abc import Callable
from typing import Final

from busway_bus.kernel.limits import REQUEST_BYTES_FREE, REQUEST_BYTES_LARGE

_SMALL_SHARE: Final = 3
"""One part in so many of the memory is kept for requests that are not large, so that those cannot take all of it."""

_LET_ON_BYTES: Final = 64 * 1024
"""When memory is given back, one connection that waits is let on for so many bytes of it, not all for the first of them."""


class Room:
    """Memory for requests of one size class.

    Attributes:
        limit: most bytes, but for the one connection whose turn it is.
        used: bytes held now.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._turn: Share | None = None
        self._line: dict[Share, None] = {}

    @property
    def contended(self) -> bool:
        """Whether connections wait for room."""
        return bool(self._line)

    def has_room(self, share: "Share") -> bool:
        """Whether a connection may take more now."""
        return self.used < self.limit or share is self._turn

    def admits(self, share: "Share") -> bool:
        """Whether a connection may read on; where it may not it waits in line, and is told."""
        if self.has_room(share):
            return True
        if self._turn is None:
            self._turn = share
            self._line.pop(share, None)
            return True
        self._line[share] = None
        return False

    def changed(self, by: int) -> None:
        """A connection holds more or less."""
        self.used += by
        if by < 0:
            self._let_on()

    def left(self, share: "Share") -> None:
        """A connection holds nothing more that needs room."""
        self._line.pop(share, None)
        if self._turn is share:
            self._turn = None
            self._let_on()

    def _let_on(self) -> None:
        free = self.limit - self.used
        while self._line and (free > 0 or self._turn is None):
            share = next(iter(self._line))
            del self._line[share]
            if free <= 0:
                self._turn = share
            free -= _LET_ON_BYTES
            share.resume()


class RequestMemory:
    """The rooms of a node.

    Args:
        limit: bytes of both together.
    """

    def __init__(self, limit: int) -> None:
        self.small = Room(limit // _SMALL_SHARE)
        self.large = Room(limit - limit // _SMALL_SHARE)

    @property
    def open(self) -> bool:
        """Whether there is room for requests of any size."""
        return self.small.used < self.small.limit and self.large.used < self.large.limit


class Share:
    """What one connection holds. A little of it is free, so that small requests are always read.

    Args:
        resume: called when a connection that had to wait may read on.
    """

    __slots__ = ("_counted", "_held", "_memory", "_room", "resume")

    def __init__(self, memory: RequestMemory, resume: Callable[[], None]) -> None:
        self._memory = memory
        self._room: Room | None = None
        self._held = 0
        self._counted = 0
        self.resume = resume

    def update(self, held: int, largest: int) -> None:
        """Count anew: bytes held, and the size of the largest request among them."""
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
        """Whether it holds what others wait for."""
        return self._room is not None and self._room.contended

    def may_read(self) -> bool:
        """Whether more may be read; where it may not, `resume` is called when it may."""
        return self._room is None or self._room.admits(self)

    def allowance(self, bytes_wanted: int) -> int:
        """How many of so many bytes may be read at once: without room little, but never nothing."""
        if self._room is None:
            return bytes_wanted if self._memory.open else min(bytes_wanted, REQUEST_BYTES_FREE - self._held)
        return bytes_wanted if self._room.has_room(self) else min(bytes_wanted, REQUEST_BYTES_FREE)
