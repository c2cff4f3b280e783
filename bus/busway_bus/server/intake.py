"""From the socket straight into frames: what `asyncio.BufferedProtocol` reads into.

What lives here: the four-byte size in front of every request, and the buffers it is read to. What does not: sockets, and what a
frame means (`dispatch`). A large request, which produce is, is read into its own frame and copied no more; small ones come by the
dozen into one scratch buffer that the connections of an event loop share, and are copied out of it at once. A size is judged before anything is
allocated for it, and a frame's buffer grows only with bytes that arrived.
"""

from typing import Final

from busway_protocol.errors import FrameRefused
from busway_protocol.frames import SIZE_BYTES

_SCRATCH_BYTES: Final = 256 * 1024
_FIRST_BYTES: Final = 1024 * 1024
"""A frame's buffer begins with at most this much, whatever size was announced, and doubles."""


def scratch_buffer() -> memoryview:
    """The buffer that the connections of one event loop share."""
    return memoryview(bytearray(_SCRATCH_BYTES))


class Intake:
    """The frames of one connection.

    Args:
        max_size: largest frame accepted, in bytes, its size prefix not counted.
        scratch: where bytes go that belong to no large frame; shared by connections of one event loop, never by two loops.
    """

    __slots__ = ("_filled", "_frame", "_head", "_max_size", "_scratch", "_size")

    def __init__(self, max_size: int, scratch: memoryview) -> None:
        self._max_size = max_size
        self._scratch = scratch
        self._head = b""
        self._frame: bytearray | None = None
        self._filled = 0
        self._size = 0

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and is not whole."""
        return self._frame is not None or bool(self._head)

    def buffer(self) -> memoryview:
        """Where the next bytes go; `received` has to follow before another connection reads."""
        return self._scratch if self._frame is None else memoryview(self._frame)[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """The frames that the first `count` bytes of `buffer` complete, each without its size; they stay valid for good.

        Raises:
            FrameRefused: a size is negative or above the maximum; the stream cannot be read on.
        """
        if self._frame is not None:
            self._filled += count
            return self._grown(self._frame)
        view = self._scratch[:count]
        if self._head:
            view = memoryview(self._head + bytes(view))
            self._head = b""
        return self._cut(view)

    def _grown(self, frame: bytearray) -> list[memoryview]:
        if self._filled == self._size:
            self._frame = None
            return [memoryview(frame)]
        if self._filled == len(frame):
            # The event loop may hold on to the old buffer, so it cannot be resized in place.
            self._frame = bytearray(min(self._size, 2 * len(frame)))
            self._frame[: self._filled] = frame
        return []

    def _cut(self, view: memoryview) -> list[memoryview]:
        position, available = 0, len(view)
        bounds = []
        while available - position >= SIZE_BYTES:
            size = int.from_bytes(view[position : position + SIZE_BYTES], "big", signed=True)
            if size < 0 or size > self._max_size:
                raise FrameRefused(size, bytes(view[position : position + 16]), self._max_size)
            end = position + SIZE_BYTES + size
            if end > available:
                self._begin(size, view[position + SIZE_BYTES :])
                break
            bounds.append((position + SIZE_BYTES, end))
            position = end
        else:
            self._head = bytes(view[position:])
        if not bounds:
            return []
        whole = memoryview(bytes(view[:position]))
        return [whole[start:end] for start, end in bounds]

    def _begin(self, size: int, start: memoryview) -> None:
        self._size = size
        self._filled = len(start)
        self._frame = bytearray(min(size, max(_FIRST_BYTES, 2 * len(start))))
        self._frame[: self._filled] = start
