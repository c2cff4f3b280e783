"""Reads from the socket straight into frames, for `asyncio.BufferedProtocol` and sockets.

Here: the four-byte size before every request, checked before any allocation, and the read buffers.
Not here: sockets, the memory limit (`request_memory`), the meaning of a frame (`dispatch`). A large request is read
into its own buffer without a copy; the buffer grows at most fourfold with each read. Small ones are copied from a
scratch buffer that an event loop's connections share.
"""

import struct
from typing import Final

from busway_bus.kernel.limits import FRAME_GROWTH_BYTES_MAX, FRAME_GROWTH_BYTES_MIN
from busway_protocol.errors import FrameRefused
from busway_protocol.frames import SIZE_BYTES

_SCRATCH_BYTES: Final = 256 * 1024
_GROWTH_FACTOR: Final = 4
"""Growth of a frame's buffer beyond the arrived bytes, within bounds."""
_ZEROS: Final = bytes(FRAME_GROWTH_BYTES_MAX)
_SIZE: Final = struct.Struct(">i")


def scratch_buffer() -> memoryview:
    return memoryview(bytearray(_SCRATCH_BYTES))


class FrameReader:
    """The frames of one connection.

    Args:
        max_size: largest frame accepted, in bytes without size prefix.
        scratch: buffer for all but large frames; shared within one event loop only.

    Attributes:
        size: announced bytes of the partial frame, 0 without one.
        arrived: bytes of it so far.
    """

    __slots__ = ("_frame", "_head", "_max_size", "_scratch", "arrived", "size")

    def __init__(self, max_size: int, scratch: memoryview) -> None:
        self._max_size = max_size
        self._scratch = scratch
        self._head = b""
        self._frame: bytearray | None = None
        self.arrived = 0
        self.size = 0

    @property
    def partial(self) -> bool:
        return self._frame is not None or bool(self._head)

    @property
    def held(self) -> int:
        return 0 if self._frame is None else len(self._frame)

    def drop(self) -> None:
        self._frame, self._head, self.arrived, self.size = None, b"", 0, 0

    def buffer(self, limit: int = _SCRATCH_BYTES) -> memoryview:
        """Return the buffer for the next bytes, at most `limit`.

        `received` must follow before another connection reads.
        """
        if self._frame is None:
            return self._scratch[:limit]
        if self.arrived == len(self._frame):
            self._grow(self._frame, limit)
        return memoryview(self._frame)[self.arrived :]

    def _grow(self, frame: bytearray, limit: int) -> None:
        more = max(FRAME_GROWTH_BYTES_MIN, (_GROWTH_FACTOR - 1) * len(frame))
        more = min(more, limit if limit < _SCRATCH_BYTES else FRAME_GROWTH_BYTES_MAX, self.size - self.arrived)
        try:
            frame += _ZEROS[:more]
        except BufferError:  # the event loop still holds the last view
            self._frame = frame + _ZEROS[:more]

    def received(self, count: int) -> list[memoryview]:
        """Return the frames completed by `count` bytes, without their sizes.

        They stay valid.

        Raises:
            FrameRefused: a size is negative or above the maximum; the stream is unreadable from there.
        """
        if self._frame is not None:
            self.arrived += count
            return self._whole(self._frame) if self.arrived == self.size else []
        view = self._scratch[:count]
        if self._head:
            view = memoryview(self._head + bytes(view))
            self._head = b""
        return self._cut(view)

    def _whole(self, frame: bytearray) -> list[memoryview]:
        self.drop()
        return [memoryview(frame)]

    def _cut(self, view: memoryview) -> list[memoryview]:
        position, available = 0, len(view)
        bounds = []
        while available - position >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(view, position)
            if size < 0 or size > self._max_size:
                raise FrameRefused(size, bytes(view[position : position + 16]), self._max_size)
            end = position + SIZE_BYTES + size
            if end > available:
                self.size = size
                self._frame = bytearray(view[position + SIZE_BYTES :])
                self.arrived = len(self._frame)
                break
            bounds.append((position + SIZE_BYTES, end))
            position = end
        else:
            self._head = bytes(view[position:])
        if not bounds:
            return []
        whole = memoryview(bytes(view[:position]))
        return [whole[start:end] for start, end in bounds]
