"""Length-prefixed framing: bytes in, whole frames out.

What lives here: the four-byte size in front of every request and response. What does not: reading sockets, and what a
frame means. A size is judged before anything is allocated for it, and the buffer grows only with bytes that arrived.
"""

from busway_protocol.errors import FrameRefused

SIZE_BYTES = 4


class FrameReader:
    """Cuts a byte stream into frames.

    Args:
        max_size: largest frame accepted, in bytes, its size prefix not counted.
    """

    __slots__ = ("_buffer", "_needed", "max_size")

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self._buffer = bytearray()
        self._needed = SIZE_BYTES

    @property
    def pending(self) -> int:
        """Bytes held of a frame that is not whole yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[memoryview]:
        """The frames that `data` completes, in order, each without its size; they stay valid for good.

        Raises:
            FrameRefused: a size is negative or above `max_size`; the stream cannot be read on.
        """
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return []
            whole = memoryview(bytes(self._buffer))
            self._buffer = bytearray()
        else:
            whole = memoryview(data if isinstance(data, bytes) else bytes(data))
        frames = []
        position = 0
        available = len(whole)
        self._needed = SIZE_BYTES
        while available - position >= SIZE_BYTES:
            size = int.from_bytes(whole[position : position + SIZE_BYTES], "big", signed=True)
            if size < 0 or size > self.max_size:
                raise FrameRefused(size, bytes(whole[position : position + 16]), self.max_size)
            end = position + SIZE_BYTES + size
            if end > available:
                self._needed = SIZE_BYTES + size
                break
            frames.append(whole[position + SIZE_BYTES : end])
            position = end
        if position < available:
            self._buffer += whole[position:]
        return frames


def frame_header(size: int) -> bytes:
    """The size prefix of a frame of `size` bytes."""
    return size.to_bytes(SIZE_BYTES, "big")
