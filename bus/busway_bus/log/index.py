"""Sparse indexes over a segment, in Kafka's file format.

Here: the search in one file, with the last used page in memory. `.index`: relative offset and file position, four bytes
each; `.timeindex`: timestamp in eight bytes, relative offset in four; an entry about every index.interval.bytes.
Not here: files, verification of an entry (`segment`). Files are not memory-mapped: an unreadable page would kill the
process.
"""

import struct
from collections.abc import Callable
from typing import Final

OFFSET_ENTRY: Final = struct.Struct(">ii")
"""Relative offset of a batch's last record, position of the batch."""
TIME_ENTRY: Final = struct.Struct(">qi")
"""Largest timestamp so far, relative offset of its record."""
PAGE_BYTES: Final = 4096
OFFSETS_MAX: Final = 2**31 - 1
"""Largest relative offset of a segment."""

_GUESSES: Final = 2

Read = Callable[[int, int], bytes]


class SparseIndex:
    """Entries of one file, ascending in both columns."""

    __slots__ = ("_entry", "_page", "_page_entries", "count")

    def __init__(self, entry: struct.Struct, size_bytes: int = 0) -> None:
        self._entry = entry
        self._page_entries = PAGE_BYTES // entry.size
        self._page: tuple[int, bytes] = (-1, b"")
        self.count = size_bytes // entry.size

    @property
    def size_bytes(self) -> int:
        return self.count * self._entry.size

    def pack(self, first: int, second: int) -> bytes:
        return self._entry.pack(first, second)

    def entry(self, number: int, read: Read) -> tuple[int, int]:
        page, at = divmod(number, self._page_entries)
        return self._at(self._load(page, read), at)

    def find(self, column: int, key: int, read: Read) -> int:
        """Return the last entry's number with at most `key`, else -1.

        Tries the last used page, else the file's last, where most reads are; then up to `_GUESSES` interpolated pages,
        then a binary search.
        """
        pages = -(-self.count // self._page_entries)
        if not pages:
            return -1
        number = self._page[0]
        if not 0 <= number < pages:
            number = pages - 1
        page = self._load(number, read)
        first, last = self._at(page, 0)[column], self._at(page, len(page) // self._entry.size - 1)[column]
        if first <= key and (key < last or number == pages - 1):
            return number * self._page_entries + self._within(page, column, key)
        low, high = (number, pages) if first <= key else (0, number)
        middle, tries = (number * key // first if first else number), 0
        while high - low > 1:
            middle = min(max(middle, low + 1), high - 1)
            if self._first(middle, read)[column] <= key:
                low, middle = middle, middle + 1
            else:
                high, middle = middle, middle - 1
            tries += 1
            if tries > _GUESSES:
                middle = (low + high) // 2
        page = self._load(low, read)
        return low * self._page_entries + self._within(page, column, key)

    def truncate(self, count: int) -> int:
        """Keep the first `count` entries; return their bytes."""
        self.count = count
        self._page = (-1, b"")
        return self.size_bytes

    def _within(self, page: bytes, column: int, key: int) -> int:
        unpack, size = self._entry.unpack_from, self._entry.size
        low, high = -1, len(page) // size
        while high - low > 1:
            middle = (low + high) // 2
            if unpack(page, middle * size)[column] <= key:
                low = middle
            else:
                high = middle
        return low

    def _at(self, page: bytes, number: int) -> tuple[int, int]:
        first, second = self._entry.unpack_from(page, number * self._entry.size)
        return first, second

    def _first(self, page: int, read: Read) -> tuple[int, int]:
        size = self._entry.size
        return self._at(read(page * self._page_entries * size, size).ljust(size, b"\0"), 0)

    def _load(self, number: int, read: Read) -> bytes:
        """Read a page. Missing bytes are zeros, which form no valid entry."""
        first = number * self._page_entries
        size = min(self._page_entries, self.count - first) * self._entry.size
        loaded, page = self._page
        if loaded != number or len(page) != size:
            page = read(first * self._entry.size, size).ljust(size, b"\0")
            self._page = (number, page)
        return page
