"""A stream on its own socket, with reads into frames and `sendfile`.

Here: system calls of one socket, on event loops with descriptor watchers (asyncio, uvloop), whose transports hide
`sendfile`.
Not here: the queue and the turns (`stream`), accepting (`acceptor`).
"""

import os
import socket
from collections.abc import Sequence
from typing import Final

from busway_bus.kernel.limits import SENDFILE_BYTES_MIN
from busway_bus.log.file_slice import FileSlice
from busway_bus.server.stream import Piece, Shared, Stream
from busway_protocol.compile import Chunk

AVAILABLE: Final = hasattr(os, "sendfile")
_READ_BYTES: Final = 1024 * 1024
"""Limit of reads from one client per loop iteration."""
_RUN_BYTES: Final = 256 * 1024
_RUN_PIECES: Final = min(os.sysconf("SC_IOV_MAX"), 1024) if hasattr(os, "sysconf") else 16
"""Limits of one `sendmsg`."""
_MORE: Final = getattr(socket, "MSG_MORE", 0)


class SocketStream(Stream):
    """The bytes of a client on its own socket.

    Args:
        connected: non-blocking; owned by the stream from now on.
    """

    def __init__(self, connected: socket.socket, host: str, shared: Shared) -> None:
        super().__init__(host, shared)
        self._socket = connected
        self._descriptor = connected.fileno()
        self._reading = False
        self._watching_reads = False
        self._waits_for_turn = False
        self._watching_writes = False

    def resume_reading(self) -> None:
        if not self._reading and not self.closing:
            self._reading = True
            if not self._waits_for_turn:
                self._watch_reads()

    def pause_reading(self) -> None:
        """Stop reading for now. The watcher stays until bytes arrive.

        Most clients send nothing before their response: this saves six system calls.
        """
        self._reading = False

    def close(self) -> None:
        self.closing = True
        self.pause_reading()
        if not self.waiting:
            self.abort()

    def abort(self) -> None:
        if self._lost:
            return
        self.pause_reading()
        self._watch_no_reads()
        self._watch_writes(on=False)
        self._forget()
        self._socket.close()
        self._loop.call_soon(self.owner.lost)

    def write(self) -> None:
        super().write()
        if self.closing and not self._lost and not self.waiting:
            self.abort()

    def _broken(self, problem: OSError) -> None:
        self.was_reset = isinstance(problem, ConnectionResetError)
        self.abort()

    # Reading

    def _watch_reads(self) -> None:
        if not self._watching_reads:
            self._watching_reads = True
            self._loop.add_reader(self._descriptor, self._readable)

    def _watch_no_reads(self) -> None:
        if self._watching_reads:
            self._watching_reads = False
            self._loop.remove_reader(self._descriptor)

    def _readable(self) -> None:
        """Read, unless paused or waiting for a turn.

        Then the watcher is removed: it would fire in each iteration.
        """
        if not self._reading:
            self._watch_no_reads()
        elif self.owner.may_read(self._read_on):
            self._read()
        else:
            self._waits_for_turn = True
            self._watch_no_reads()

    def _read_on(self) -> None:
        self._waits_for_turn = False
        if self._reading:
            self._watch_reads()
            self._read()

    def _read(self) -> None:
        try:
            self._receive()
        except BaseException:
            self.abort()
            raise

    def _receive(self) -> None:
        left = _READ_BYTES
        while left > 0 and self._reading:
            buffer = self.owner.buffer()
            size = len(buffer)
            try:
                count = self._socket.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as problem:
                self._broken(problem)
                return
            del buffer  # a frame's buffer can only grow without views
            if not count:
                self.close()
                return
            self.owner.received(count)
            if count < size:
                return
            left -= count

    # Writing

    def put(self, pieces: Sequence[Piece]) -> None:
        """Send what is short and in memory at once, without the queue if that is empty."""
        run = [piece for piece in pieces if not isinstance(piece, FileSlice)]
        size = sum(map(len, run))
        free = not (self.waiting or self._bringing or self._lost)
        if not free or len(run) < len(pieces) or size > _RUN_BYTES or len(run) > _RUN_PIECES:
            super().put(pieces)
            return
        self._queued_bytes += size
        if not self._send_pieces(run, size, 0):
            self.write()

    def _writable(self) -> None:
        self._blocked = False
        try:
            self.owner.write_on()
        except BaseException:
            self.abort()
            raise
        if not self._blocked:
            self._watch_writes(on=False)

    def _watch_writes(self, *, on: bool) -> None:
        if on and not self._watching_writes:
            self._loop.add_writer(self._descriptor, self._writable)
        elif self._watching_writes and not on:
            self._loop.remove_writer(self._descriptor)
        self._watching_writes = on

    def _block(self) -> bool:
        self._blocked = True
        self._watch_writes(on=True)
        return False

    def _send(self) -> bool:
        piece = self._queue[0]
        if isinstance(piece, FileSlice) and _goes_by_itself(piece):
            return self._send_slice(piece)
        return self._send_run()

    def _send_slice(self, piece: FileSlice) -> bool:
        room = self._room(piece)
        if not room:
            return False
        try:
            count = os.sendfile(self._descriptor, piece.descriptor, piece.position, room)
        except (BlockingIOError, InterruptedError):
            return self._block()
        except OSError as problem:
            return self._failed(piece, problem)
        if not count:
            return self._ended(piece)
        piece.skip(count)
        self._sent_slice(piece, count)
        return True if count == room else self._block()

    def _ended(self, piece: FileSlice) -> bool:
        try:
            piece.take(1)
        except OSError as problem:
            self.owner.unreadable(problem)
        else:
            self.abort()
        return False

    def _failed(self, piece: FileSlice, problem: OSError) -> bool:
        """Find the failed side of `sendfile` by a read of the file."""
        try:
            os.pread(piece.descriptor, 1, piece.position)
        except OSError:
            self.owner.unreadable(problem)
        else:
            self._broken(problem)
        return False

    def _send_run(self) -> bool:
        run = self._run()
        if not run:
            return False
        more = _MORE if self._queue and not self._bringing else 0
        return self._send_pieces(run, sum(map(len, run)), more)

    def _send_pieces(self, run: list[Chunk], size: int, more: int) -> bool:
        try:
            count = self._socket.sendmsg(run, (), more)
        except (BlockingIOError, InterruptedError):
            count = 0
        except OSError as problem:
            self._broken(problem)
            return False
        self._queued_bytes -= count
        if count:
            self.taken_at = self._loop.time()
        if count == size:
            return True
        self._put_back(run, count)
        return self._block()

    def _run(self) -> list[Chunk]:
        """Dequeue what is sent together; small slices are read here."""
        run: list[Chunk] = []
        size = 0
        while self._queue and len(run) < _RUN_PIECES and size < _RUN_BYTES:
            piece = self._queue[0]
            if not isinstance(piece, FileSlice):
                run.append(piece)
                size += len(piece)
                self._queue.popleft()
                continue
            if _goes_by_itself(piece):
                break
            try:
                data = self._take(piece)
            except OSError as problem:
                self.owner.unreadable(problem)
                return []
            if data is None:
                break
            self._queued_bytes += len(data)
            self._sent_slice(piece, len(data))
            run.append(data)
            size += len(data)
        return run

    def _put_back(self, run: list[Chunk], count: int) -> None:
        rest: list[Piece] = []
        for piece in run:
            if count >= len(piece):
                count -= len(piece)
            else:
                rest.append(memoryview(piece)[count:] if count else piece)
                count = 0
        self._queue.extendleft(reversed(rest))


def _goes_by_itself(piece: FileSlice) -> bool:
    return len(piece) >= SENDFILE_BYTES_MIN and piece.descriptor >= 0
