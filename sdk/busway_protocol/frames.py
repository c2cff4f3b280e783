"""Length-prefixed framing.

Here: the four-byte size before every request and response.
Not here: sockets. A size is checked before any allocation; the buffer grows only with received bytes.
"""

from busway_protocol.errors import FrameRefused

SIZE_BYTES = 4


class FrameReader:
    """Splitter of a byte stream into frames of at most `max_size` bytes, without prefix."""

    __slots__ = ("_buffer", "_needed", "max_size")

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self._buffer = bytearray()
        self._needed = SIZE_BYTES

    @property
    def pending(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[memoryview]:
        """Return the frames that `data` completes, without size; they stay valid.

        Raise `FrameRefused` for a negative size or one above `max_size`; the stream is then unusable.
        """
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return []
            whole = memoryview(self._buffer).toreadonly()  # not copied: a response may have megabytes
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
    return size.to_bytes(SIZE_BYTES, "big")
