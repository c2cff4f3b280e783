"""A part of a log file that goes to a client: read when its socket has room for it, not before.

What lives here: the range, and the ways to the client: `take` gives bytes, `descriptor` and `position` are for `os.sendfile`, with
`skip` after it. What does not: which range it is (`partition_log`) and when it is read (`server.stream`). Whoever has a slice can read
it, whatever becomes of the segment: its file stays open that long.
"""

from collections.abc import Callable

from busway_bus.kernel.files import Loan

Warming = Callable[[], None]
"""Reads pages from the disk into memory; to be called in another thread, may raise OSError."""


class ColdPages(Exception):
    """A look-up that would have to wait for the disk.

    Attributes:
        warm: once it has run, the same is asked again, and that time waited for: memory may be so short that the pages are gone once more.
    """

    def __init__(self, warm: Warming) -> None:
        super().__init__("the disk would have to be waited for")
        self.warm = warm


class FileSlice:
    """Bytes of a file; `len` is how many are left to take.

    Attributes:
        position: where in the file the first of them is.
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
        """The file's, open as long as the slice is there; -1 where there is none, and `take` is the only way."""
        return self._loan.descriptor

    def take(self, count: int) -> bytes:
        """The next `count` bytes, or what is left of them.

        Raises:
            OSError: the disk failed, or the file has become shorter.
        """
        size = min(count, self._left)
        data = self._loan.read(self.position, size)
        if len(data) < size:
            raise OSError(f"a log file ends at byte {self.position + len(data)}, {size - len(data)} short")
        self.skip(size)
        return data

    def take_now(self, count: int) -> bytes | bytearray:
        """As `take`, but never waits for the disk.

        Raises:
            BlockingIOError: they are not all in memory, or the file has become shorter.
            OSError: the disk failed.
        """
        size = min(count, self._left)
        data = self._loan.read_now(self.position, size)
        self.skip(size)
        return data

    def skip(self, count: int) -> None:
        """The next `count` bytes, of those that are left, went another way."""
        assert 0 <= count <= self._left, "no more was sent than there is"
        self.position += count
        self._left -= count

    def in_memory(self, count: int) -> bool:
        """Whether the next `count` bytes can be read or sent without a wait for the disk, as far as a cheap look tells.

        Raises:
            OSError: the disk failed.
        """
        return self._loan.in_memory(self.position, min(count, self._left))

    def warm(self, count: int) -> None:
        """Wait, in any thread but the event loop's, until the next `count` bytes are in memory.

        Raises:
            OSError: the disk failed.
        """
        self._loan.warm(self.position, min(count, self._left))
