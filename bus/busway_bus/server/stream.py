"""One client's bytes: received as they arrive, sent from memory and files.

Here: the interfaces `Stream` and `Owner` (the connection); the queue of responses, in which parts of files stay files,
and the wait for uncached pages.
Not here: sockets (`socket_stream`, `transport_stream`), frames (`frame_reader`), requests (`connection`).
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from busway_bus.log.file_slice import FileSlice
from busway_bus.server.page_cache import PageCache
from busway_bus.server.response_memory import ResponseMemory
from busway_bus.server.write_rounds import WriteRounds
from busway_protocol.compile import Chunk

Piece: TypeAlias = Chunk | FileSlice


class Owner(Protocol):
    """A connection, for its stream."""

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes; `received` follows before another connection reads."""

    def received(self, count: int) -> None:
        """Handle `count` bytes in the buffer."""

    def may_read(self, later: Callable[[], None]) -> bool:
        """Whether to read now; if not, `later` is called in turn."""

    def write_on(self) -> None:
        """Call `Stream.write` and continue: more can be written."""

    def unreadable(self, problem: OSError) -> None:
        """Handle a failed read of a file that is being sent."""

    def cut_off(self) -> None:
        """Close: the client does not read while others need the memory."""

    def lost(self) -> None:
        """Handle the connection's end; the last call."""


class Shared:
    def __init__(self) -> None:
        self.memory = ResponseMemory()
        self.write_rounds = WriteRounds()
        self.pages = PageCache()


class Stream(ABC):
    """The bytes of one client.

    Attributes:
        taken_at: loop time at which the client last accepted bytes.
        closing: whether only the queue is still written.
        owed: bytes of responses that wait for an earlier one.
        was_reset: the other side, or the network, reset the connection.
    """

    owner: Owner

    def __init__(self, host: str, shared: Shared) -> None:
        self.host = host
        self.closing = False
        self.was_reset = False
        self._memory = shared.memory
        self._write_rounds = shared.write_rounds
        self._pages = shared.pages
        self._loop = asyncio.get_running_loop()
        self.taken_at = self._loop.time()
        self._queue: deque[Piece] = deque()
        self._queued_bytes = 0
        self.owed = 0
        self._blocked = False
        self._bringing = False
        self._resident_to = -1
        self._lost = False

    # Called by the connection

    @property
    def waiting(self) -> bool:
        return self._blocked or bool(self._queue)

    def put(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            self._queue.append(piece)
            if not isinstance(piece, FileSlice):
                self._queued_bytes += len(piece)
        self.write()

    def write(self) -> None:
        while self._queue and not self._blocked and not self._bringing and not self._lost:
            if not self._send():
                break
        if self._lost:
            return
        held = self._held()
        if not held and not self.waiting:
            self.taken_at = self._loop.time()
        self._memory.update(self, held + self.owed)

    def queue_bytes(self, count: int) -> None:
        if count != self.owed and not self._lost:
            self.owed = count
            self._memory.update(self, self._held() + count)

    def look(self, now: float) -> None:  # noqa: B027 - most need none
        """Note whether the client has accepted bytes since the last call."""

    @abstractmethod
    def pause_reading(self) -> None:
        """Stop reading for now."""

    @abstractmethod
    def resume_reading(self) -> None:
        """Read again."""

    @abstractmethod
    def close(self) -> None:
        """Close after the queue is written."""

    @abstractmethod
    def abort(self) -> None:
        """Close at once."""

    # Implemented by subclasses

    @abstractmethod
    def _send(self) -> bool:
        """Send from the queue's front; False to wait for `Owner.write_on`."""

    def _held(self) -> int:
        return self._queued_bytes

    # Shared by subclasses

    def cut_off(self) -> None:
        self.owner.cut_off()

    def write_on(self) -> None:
        self.owner.write_on()

    def _room(self, piece: FileSlice) -> int:
        """Return the bytes of the first slice to send; 0 to wait."""
        room = min(self._write_rounds.room(self), len(piece))
        if room and piece.position < self._resident_to:
            return min(room, self._resident_to - piece.position)
        if not room:
            return 0
        self._resident_to = piece.position + room  # if evicted again after `bring`, the read may block
        try:
            if piece.in_memory(room):
                return room
        except OSError:
            return room  # the read fails too
        self._bring(piece, room)
        return 0

    def _take(self, piece: FileSlice) -> bytes | bytearray | None:
        """Read from the first slice, a small one; None to wait.

        Raises:
            OSError: as `FileSlice.take`.
        """
        room = min(self._write_rounds.room(self), len(piece))
        if not room:
            return None
        if piece.position < self._resident_to:
            return piece.take(min(room, self._resident_to - piece.position))
        try:
            return piece.take_now(room)
        except BlockingIOError:
            self._resident_to = piece.position + room
            self._bring(piece, room)
            return None

    def _bring(self, piece: FileSlice, room: int) -> None:
        self._bringing = True
        self._pages.bring(piece, room, self._brought)

    def _brought(self, reading: "asyncio.Future[None]") -> None:
        self._bringing = False
        problem = None if reading.cancelled() else reading.exception()
        if self._lost:
            return
        if isinstance(problem, OSError):
            self.owner.unreadable(problem)
        else:
            self.owner.write_on()

    def _sent_slice(self, piece: FileSlice, count: int) -> None:
        self._write_rounds.written(self, count)
        self.taken_at = self._loop.time()
        if not piece:
            self._queue.popleft()
            self._resident_to = -1

    def _forget(self) -> None:
        self._lost = self.closing = True
        self._blocked = False
        self._queue.clear()
        self._queued_bytes = self.owed = 0
        self._write_rounds.leave(self)
        self._memory.update(self, 0)
