"""A stream on an event loop's transport: encryption, or a simulated network.

Here: the asyncio protocol.
Not here: the queue and the turns (`stream`). Files are read a slice at a time, when the transport has nothing left to
send: it would buffer everything.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from busway_bus.log.file_slice import FileSlice
from busway_bus.server.stream import Shared, Stream
from busway_protocol.compile import Chunk

TRANSPORT_BYTES: Final = 8 * 1024
"""Write buffer limit of a transport, uncounted."""


class TransportStream(Stream, asyncio.BufferedProtocol):
    """The bytes of a client on an event loop's transport.

    Args:
        accept: makes the stream's owner, or closes it.
    """

    def __init__(self, accept: Callable[[Stream], None], shared: Shared) -> None:
        super().__init__("", shared)
        self._accept = accept
        self._transport: asyncio.Transport | None = None
        self._unsent = 0
        self._paused = False

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class is no subclass
        self._transport.set_write_buffer_limits(high=TRANSPORT_BYTES)
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if isinstance(peer, tuple) else "local"
        self._accept(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.owner.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.owner.received(nbytes)

    def eof_received(self) -> bool:
        self.closing = True
        return self.waiting

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        self.owner.write_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self.was_reset = isinstance(exc, ConnectionResetError)
        self._forget()
        self.owner.lost()

    # Stream

    def resume_reading(self) -> None:
        if self._paused and not self.closing:
            self._paused = False
            self._socket.resume_reading()

    def pause_reading(self) -> None:
        if not self._paused and not self.closing:
            self._paused = True
            self._socket.pause_reading()

    def close(self) -> None:
        self.pause_reading()
        self.closing = True
        if not self.waiting:
            self._socket.close()

    def abort(self) -> None:
        self.closing = True
        self._queue.clear()
        self._queued_bytes = 0
        self._socket.abort()

    def write(self) -> None:
        super().write()
        if self.closing and not self._lost and not self.waiting:
            self._socket.close()

    def look(self, now: float) -> None:
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
        """Pass readable parts of files to the transport, with their surrounding chunks."""
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
