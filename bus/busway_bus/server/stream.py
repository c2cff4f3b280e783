"""One client's bytes: in as they come, out from memory and from files.

What lives here: what a connection knows of its socket (`Stream`), what a socket asks of its connection (`Owner`), and what both kinds of
sockets share: the queue of answers, in which the parts of files stay files, and the wait for pages that are not in memory. What does not:
the sockets (`socket_stream`, `transport_stream`), frames (`frame_reader`), requests (`connection`).
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from busway_bus.log.file_slice import FileSlice
from busway_bus.server.page_cache import PageCache
from busway_bus.server.response_memory import ResponseMemory
from busway_bus.server.write_turns import WriteTurns
from busway_protocol.compile import Chunk

Piece: TypeAlias = Chunk | FileSlice


class Owner(Protocol):
    """A connection, as its stream sees it."""

    def buffer(self) -> memoryview:
        """Where the next bytes go; `received` follows before anybody else's are read."""

    def received(self, count: int) -> None:
        """So many bytes were put into the buffer."""

    def may_read(self, later: Callable[[], None]) -> bool:
        """Whether it is this client's turn to be read from; where it is not, `later` is called in it."""

    def write_on(self) -> None:
        """More can be written: call `Stream.write`, and go on with what waited for it."""

    def unreadable(self, problem: OSError) -> None:
        """A file that is being sent cannot be read."""

    def cut_off(self) -> None:
        """The client does not take its answers while others need the memory."""

    def lost(self) -> None:
        """The client is gone; the last call."""


class Shared:
    """What the streams of one event loop share."""

    def __init__(self) -> None:
        self.memory = ResponseMemory()
        self.turns = WriteTurns()
        self.pages = PageCache()


class Stream(ABC):
    """The bytes of one client.

    Args:
        host: where it comes from.

    Attributes:
        taken_at: when the client last took something, in the event loop's time.
        closing: whether nothing more is read, and what is queued is the last that is written.
        owed: bytes of answers that are there and not put yet, as an earlier one is not there.
    """

    owner: Owner

    def __init__(self, host: str, shared: Shared) -> None:
        self.host = host
        self.closing = False
        self._memory = shared.memory
        self._turns = shared.turns
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

    # What a connection calls

    @property
    def waiting(self) -> bool:
        """Whether something waits for the client, its turn or the disk."""
        return self._blocked or bool(self._queue)

    def put(self, pieces: Iterable[Piece]) -> None:
        """Add an answer, and write what the client takes."""
        for piece in pieces:
            self._queue.append(piece)
            if not isinstance(piece, FileSlice):
                self._queued_bytes += len(piece)
        self.write()

    def write(self) -> None:
        """Write what the client takes now."""
        while self._queue and not self._blocked and not self._bringing and not self._lost:
            if not self._send():
                break
        if self._lost:
            return
        held = self._held()
        if not held and not self.waiting:
            self.taken_at = self._loop.time()
        self._memory.update(self, held + self.owed)

    def owe(self, count: int) -> None:
        """Count what is `owed` anew."""
        if count != self.owed and not self._lost:
            self.owed = count
            self._memory.update(self, self._held() + count)

    def look(self, now: float) -> None:  # noqa: B027 - most need none
        """Note whether the client has taken something since the last look."""

    @abstractmethod
    def pause_reading(self) -> None:
        """Take in no more bytes for now."""

    @abstractmethod
    def resume_reading(self) -> None:
        """Take in bytes again."""

    @abstractmethod
    def close(self) -> None:
        """End when what is queued has gone out."""

    @abstractmethod
    def abort(self) -> None:
        """End at once."""

    # What the kinds differ in

    @abstractmethod
    def _send(self) -> bool:
        """Send something from the front of the queue; False where that has to wait, and `Owner.write_on` will be called."""

    def _held(self) -> int:
        """Bytes of answers in memory."""
        return self._queued_bytes

    # What they share

    def cut_off(self) -> None:
        """The memory is needed by others."""
        self.owner.cut_off()

    def write_on(self) -> None:
        """It is this stream's turn."""
        self.owner.write_on()

    def _room(self, piece: FileSlice) -> int:
        """How many bytes of the slice in front may be sent now; 0 where it has to wait for its turn or for the disk."""
        room = min(self._turns.room(self), len(piece))
        if room and piece.position < self._resident_to:
            return min(room, self._resident_to - piece.position)
        if not room:
            return 0
        self._resident_to = (
            piece.position + room
        )  # if it is gone again when it was brought, waiting for it is the way on
        try:
            if piece.in_memory(room):
                return room
        except OSError:
            return room  # whoever reads it is told
        self._bring(piece, room)
        return 0

    def _take(self, piece: FileSlice) -> bytes | bytearray | None:
        """The slice in front, which is small, as far as it may be read now; None where it has to wait for its turn or for the disk.

        Raises:
            OSError: as of `FileSlice.take`.
        """
        room = min(self._turns.room(self), len(piece))
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
        """So many bytes of the slice in front are gone."""
        self._turns.written(self, count)
        self.taken_at = self._loop.time()
        if not piece:
            self._queue.popleft()
            self._resident_to = -1

    def _forget(self) -> None:
        """The client is gone: let go of everything that is for it."""
        self._lost = self.closing = True
        self._blocked = False
        self._queue.clear()
        self._queued_bytes = self.owed = 0
        self._turns.leave(self)
        self._memory.update(self, 0)
