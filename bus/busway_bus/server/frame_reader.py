"""From the socket straight into frames: what `asyncio.BufferedProtocol` reads into.

What lives here: the four-byte size in front of every request, and the buffers it is read to. What does not: sockets, how much all
connections may hold together (`request_memory`), and what a frame means (`dispatch`). A large request, which produce is, is read
into its own frame and copied no more; small ones come by the dozen into one scratch buffer that the connections of an event loop
share, and are copied out of it at once. A size is judged before anything is allocated for it, and a frame's buffer is as large as
what has come of it until the moment in which more comes, and then at most four times that.
"""

from typing import Final

from busway_bus.kernel.limits import FRAME_GROWTH_BYTES_MAX, FRAME_GROWTH_BYTES_MIN
from busway_protocol.errors import FrameRefused
from busway_protocol.frames import SIZE_BYTES

_SCRATCH_BYTES: Final = 256 * 1024
_GROWTH_FACTOR: Final = 4
"""A frame's buffer grows to so many times what has come, by at least and at most so many bytes."""
_ZEROS: Final = bytes(FRAME_GROWTH_BYTES_MAX)


def scratch_buffer() -> memoryview:
    """The buffer that the connections of one event loop share."""
    return memoryview(bytearray(_SCRATCH_BYTES))


class FrameReader:
    """The frames of one connection.

    Args:
        max_size: largest frame accepted, in bytes, its size prefix not counted.
        scratch: where bytes go that belong to no large frame; shared by connections of one event loop, never by two loops.

    Attributes:
        size: announced bytes of the frame that has begun, 0 where none has.
        arrived: how many of them are there.
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
        """Whether a frame has begun and is not whole."""
        return self._frame is not None or bool(self._head)

    @property
    def held(self) -> int:
        """Bytes of memory that the frame which has begun takes."""
        return 0 if self._frame is None else len(self._frame)

    def drop(self) -> None:
        """Forget the frame that has begun: its rest will not come."""
        self._frame, self._head, self.arrived, self.size = None, b"", 0, 0

    def buffer(self, limit: int = _SCRATCH_BYTES) -> memoryview:
        """Where the next bytes go, at most `limit`; `received` has to follow before another connection reads."""
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
        except BufferError:  # an event loop that holds on to the last buffer
            self._frame = frame + _ZEROS[:more]

    def received(self, count: int) -> list[memoryview]:
        """The frames that the first `count` bytes of `buffer` complete, each without its size; they stay valid for good.

        Raises:
            FrameRefused: a size is negative or above the maximum; the stream cannot be read on.
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
            size = int.from_bytes(view[position : position + SIZE_BYTES], "big", signed=True)
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
