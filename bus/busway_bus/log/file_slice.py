"""A part of a log file that goes to a client: read when its socket has room for it, not before.

What lives here: the range and its reading, piece by piece. What does not: which range it is (`partition_log`) and when it is read
(`server.outbox`). Whoever has a slice can read it, whatever becomes of the segment: its file stays open that long.
"""

from busway_bus.kernel.files import Loan


class FileSlice:
    """Bytes of a file; `len` is how many are left to take."""

    __slots__ = ("_left", "_loan", "_position")

    def __init__(self, loan: Loan, position: int, size: int) -> None:
        self._loan = loan
        self._position = position
        self._left = size

    def __len__(self) -> int:
        return self._left

    def take(self, count: int) -> bytes:
        """The next `count` bytes, or what is left of them.

        Raises:
            OSError: the disk failed, or the file has become shorter.
        """
        wanted = min(count, self._left)
        data = self._loan.read(self._position, wanted)
        if len(data) < wanted:
            raise OSError(f"a log file ends at byte {self._position + len(data)}, {wanted - len(data)} short")
        self._position += wanted
        self._left -= wanted
        return data
