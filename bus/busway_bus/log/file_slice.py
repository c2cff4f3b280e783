"""Range of a log file, read when the client's socket has room.

Here: two ways to send it: `take`, or `os.sendfile` with `descriptor` and `position`, then `skip`.
Not here: the choice of the range (`partition_log`), sending (`server.stream`).
"""

from collections.abc import Callable

from busway_bus.kernel.files import Loan

Warming = Callable[[], None]
"""Reads pages into memory. Call it in another thread; may raise OSError."""


class ColdPages(Exception):
    """A look-up that would wait for the disk.

    Call `warm`, then repeat with `wait`: the pages may be evicted again.
    """

    def __init__(self, warm: Warming) -> None:
        super().__init__("the disk would have to be waited for")
        self.warm = warm


class FileSlice:
    """A range of a file, readable even after its segment is deleted.

    `len` is the number of bytes left, `position` that of the next byte in the file. Reads raise OSError if the disk
    fails.
    """

    __slots__ = ("_left", "_loan", "position")

    def __init__(self, loan: Loan, position: int, size: int) -> None:
        self._loan = loan
        self.position = position
        self._left = size

    def __len__(self) -> int:
        return self._left

    @property
    def descriptor(self) -> int:
        """Descriptor, open as long as the slice exists. -1 if only `take` is supported."""
        return self._loan.descriptor

    def take(self, count: int) -> bytes:
        """Read the next `count` bytes, or all left. OSError also if truncated."""
        size = min(count, self._left)
        data = self._loan.read(self.position, size)
        if len(data) < size:
            raise OSError(f"a log file ends at byte {self.position + len(data)}, {size - len(data)} short")
        self.skip(size)
        return data

    def take_now(self, count: int) -> bytes | bytearray:
        """As `take`, without waiting.

        BlockingIOError: not all bytes are in memory, or the file was truncated.
        """
        size = min(count, self._left)
        data = self._loan.read_now(self.position, size)
        self.skip(size)
        return data

    def skip(self, count: int) -> None:
        assert 0 <= count <= self._left, "no more was sent than there is"
        self.position += count
        self._left -= count

    def in_memory(self, count: int) -> bool:
        """Whether the next `count` bytes are in memory, by a cheap probe."""
        return self._loan.in_memory(self.position, min(count, self._left))

    def warm(self, count: int) -> None:
        """Read the next `count` bytes into memory. Not on the event loop."""
        self._loan.warm(self.position, min(count, self._left))
