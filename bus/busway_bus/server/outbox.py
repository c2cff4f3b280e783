"""Answers on their way to a client that may not read them.

What lives here: the queue of one connection, in which what comes from log files stays there until the socket has room, and what all
connections together hold. What does not: sockets (`connection`), answers (`dispatch`). One client that does not read costs a slice
of its answer; many of them get smaller slices; and where that is not enough the one that has taken nothing for longest is cut off.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from busway_bus.kernel.limits import RESPONSE_BYTES_MAX
from busway_bus.log.file_slice import FileSlice
from busway_protocol.compile import Chunk

Piece: TypeAlias = Chunk | FileSlice

TRANSPORT_BYTES: Final = 8 * 1024
"""What a transport may hold back before no more is given to it; a client that reads nothing may leave so much uncounted."""
_SLICE_BYTES: Final = 1024 * 1024
_SLICE_BYTES_PRESSED: Final = 16 * 1024
_TURN_BYTES: Final = 4 * 1024 * 1024
"""What is read from files and written to all clients together before the event loop looks for requests again."""


class ResponseMemory:
    """What all connections hold of answers that their clients have not taken, in bytes, and who may write now."""

    def __init__(self, limit: int = RESPONSE_BYTES_MAX) -> None:
        self._limit = limit
        self.used = 0
        self._held: dict[Outbox, int] = {}
        self._turn_left = _TURN_BYTES
        self._turn: asyncio.Handle | None = None
        self._line: dict[Outbox, None] = {}

    def slices(self, outbox: "Outbox") -> int:
        """How many bytes of files a connection may write now; 0 makes it wait for its turn, in which `write_on` is called."""
        if self._turn_left <= 0:
            self._line[outbox] = None
            return 0
        return min(self._turn_left, _SLICE_BYTES if self.used * 2 < self._limit else _SLICE_BYTES_PRESSED)

    def written(self, count: int) -> None:
        """So many bytes of files were written."""
        self._turn_left -= count
        if self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn = None
        self._turn_left = _TURN_BYTES
        while self._line and self._turn_left > 0:
            outbox = next(iter(self._line))
            del self._line[outbox]
            outbox.write_on()

    def forget(self, outbox: "Outbox") -> None:
        """A connection is gone."""
        self._line.pop(outbox, None)
        self.update(outbox, 0)

    def update(self, outbox: "Outbox", held: int) -> None:
        """Count one connection anew; where all of them hold too much, who has taken nothing for longest is cut off."""
        before = self._held.get(outbox, 0)
        if held == before:
            return
        if held:
            self._held[outbox] = held
        elif before:
            del self._held[outbox]
        self.used += held - before
        while self.used > self._limit:
            idle = min(self._held, key=lambda one: one.taken_at)
            self.used -= self._held.pop(idle)
            idle.cut_off()


class Outbox:
    """The answers of one connection, in order.

    Args:
        write_on: calls `write` and does what waits for it; called when it is this connection's turn again.
        cut_off: ends the connection, because its client does not take its answers while others need the memory.

    Attributes:
        taken_at: when the client last took something, in the event loop's time.
        paused: whether the transport takes nothing now.
    """

    def __init__(
        self,
        transport: asyncio.WriteTransport,
        memory: ResponseMemory,
        *,
        write_on: Callable[[], None],
        cut_off: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._memory = memory
        self._queue: deque[Piece] = deque()
        self._bytes = 0
        self._unsent = 0
        self._loop = asyncio.get_running_loop()
        self.write_on = write_on
        self.cut_off = cut_off
        self.taken_at = self._loop.time()
        self.paused = False
        transport.set_write_buffer_limits(high=TRANSPORT_BYTES)

    def __bool__(self) -> bool:
        """Whether something waits for the client."""
        return self.paused or bool(self._queue)

    def put(self, pieces: Iterable[Piece]) -> None:
        """Add an answer, and write what the client takes.

        Raises:
            OSError: a log file cannot be read; what the client got of its answer is of no use.
        """
        for piece in pieces:
            self._queue.append(piece)
            if not isinstance(piece, FileSlice):
                self._bytes += len(piece)
        self.write()

    def write(self) -> None:
        """Write what the client takes now.

        Raises:
            OSError: as of `put`.
        """
        while self._queue and not self.paused:
            batch = self._next()
            if not batch:
                break
            self._transport.writelines(batch)
        self._count()

    def _next(self) -> list[Chunk]:
        """What is written together: what may be read from files now, and what stands before, between and behind it."""
        batch: list[Chunk] = []
        room: int | None = None
        while self._queue:
            piece = self._queue[0]
            if isinstance(piece, FileSlice):
                room = self._memory.slices(self) if room is None else room
                if room == 0:
                    break
                data = piece.take(room)
                room -= len(data)
                self._memory.written(len(data))
                batch.append(data)
                if piece:
                    break
            else:
                self._bytes -= len(piece)
                batch.append(piece)
            self._queue.popleft()
        return batch

    def look(self, now: float) -> None:
        """Note whether the client has taken something since the last look."""
        unsent = self._transport.get_write_buffer_size()
        if unsent < self._unsent:
            self.taken_at = now
        self._unsent = unsent

    def clear(self) -> None:
        """The client is gone."""
        self._memory.forget(self)
        self._queue.clear()
        self._bytes = 0

    def _count(self) -> None:
        self._unsent = self._transport.get_write_buffer_size()
        if not self.paused and not self._queue:
            self.taken_at = self._loop.time()
            self._memory.update(self, 0)
        else:
            self._memory.update(self, self._bytes + self._unsent)
