"""A stream on an event loop's transport: for what stands between a socket and its bytes, encryption or a simulated network.

What lives here: the asyncio protocol. What does not: the queue and the turns (`stream`). Files are read into memory, a slice at a time, when
the transport has nothing to send any more, as a transport takes whatever it is given and keeps it.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from busway_bus.log.file_slice import FileSlice
from busway_bus.server.stream import Shared, Stream
from busway_protocol.compile import Chunk

TRANSPORT_BYTES: Final = 8 * 1024
"""What a transport may hold back before no more is given to it; a client that reads nothing may leave so much uncounted."""


class TransportStream(Stream, asyncio.BufferedProtocol):
    """The bytes of a client whose transport the event loop has.

    Args:
        accept: makes the owner of a stream, or refuses and ends it.
    """

    def __init__(self, accept: Callable[[Stream], None], shared: Shared) -> None:
        super().__init__("", shared)
        self._accept = accept
        self._transport: asyncio.Transport | None = None
        self._unsent = 0
        self._paused = False

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop has classes of its own
        self._transport.set_write_buffer_limits(high=TRANSPORT_BYTES)
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if isinstance(peer, tuple) else "local"
        self._accept(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self.owner.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Take in bytes."""
        self.owner.received(nbytes)

    def eof_received(self) -> bool:
        """The client will send no more: what is queued goes out, and that is the end."""
        self.closing = True
        return self.waiting

    def pause_writing(self) -> None:
        """The client does not read."""
        self._blocked = True

    def resume_writing(self) -> None:
        """The client reads again."""
        self._blocked = False
        self.owner.write_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._forget()
        self.owner.lost()

    # Stream

    def resume_reading(self) -> None:
        """Take in bytes, now or again."""
        if self._paused and not self.closing:
            self._paused = False
            self._socket.resume_reading()

    def pause_reading(self) -> None:
        """Take in no more bytes for now."""
        if not self._paused and not self.closing:
            self._paused = True
            self._socket.pause_reading()

    def close(self) -> None:
        """End when what is queued has gone out."""
        self.pause_reading()
        self.closing = True
        if not self.waiting:
            self._socket.close()

    def abort(self) -> None:
        """End at once."""
        self.closing = True
        self._queue.clear()
        self._queued_bytes = 0
        self._socket.abort()

    def write(self) -> None:
        """Write what the client takes now."""
        super().write()
        if self.closing and not self._lost and not self.waiting:
            self._socket.close()

    def look(self, now: float) -> None:
        """Note whether the client has taken something since the last look."""
        unsent = self._socket.get_write_buffer_size()
        if unsent < self._unsent:
            self.taken_at = now
        self._unsent = unsent

    @property
    def _socket(self) -> asyncio.Transport:
        assert self._transport is not None, "there is a transport from connection_made on"
        return self._transport

    def _held(self) -> int:
        if not self.waiting:
            return 0
        self._unsent = self._socket.get_write_buffer_size()
        return self._queued_bytes + self._unsent

    def _send(self) -> bool:
        """Give the transport what may be read from files now, and what stands before, between and behind it."""
        batch: list[Chunk] = []
        left = self._memory.slice_bytes
        while self._queue and left > 0:
            piece = self._queue[0]
            if not isinstance(piece, FileSlice):
                self._queued_bytes -= len(piece)
                batch.append(piece)
                self._queue.popleft()
                continue
            room = min(self._room(piece), left)
            if not room:
                break
            try:
                batch.append(piece.take(room))
            except OSError as problem:
                self.owner.unreadable(problem)
                return False
            left -= room
            self._sent_slice(piece, room)
        if batch:
            self._socket.writelines(batch)
        return bool(batch)
