"""The `.txnindex` of a segment: aborted transactions by their markers.

Here: its file, created with the first entry.
Not here: the search (`aborted`), the rebuild (`recovery`).
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from busway_bus.kernel.files import File, Files
from busway_bus.log import aborted
from busway_bus.log.aborted import ENTRY, AbortedTransaction, Overlaps
from busway_bus.log.segment_indexes import read_now
from busway_protocol.records.batch import CorruptBatch

R = TypeVar("R")


class TransactionIndex:
    """Index of aborted transactions of one segment.

    Reads and `cut` raise CorruptBatch if it is damaged, and ColdPages without `wait`. `size`: bytes of the file, None
    without a file.
    """

    __slots__ = ("_file", "_files", "_path", "count")

    def __init__(self, files: Files, path: str, size: int | None) -> None:
        self._files = files
        self._path = path
        self._file: File | None = None
        if size is not None:
            self._file = files.open_later(path, size)
            self._file.disposable = True
        self.count = (size or 0) // ENTRY.size

    @property
    def there(self) -> bool:
        return self._file is not None

    def append(self, entry: AbortedTransaction) -> None:
        """Add the next marker's entry; call `take_back` if writing that fails.

        After an OSError nothing was added.
        """
        if self._file is None:
            self._file = self._files.open(self._path)
            self._file.disposable = True
        size = self.count * ENTRY.size
        if self._file.size != size:  # a file left by an earlier process
            self._file.truncate(size)
        self._file.append([entry.packed()])
        self.count += 1

    def take_back(self) -> None:
        """Remove the last entry. After an OSError the file refuses later writes."""
        assert self._file is not None, "an entry was added"
        self.count -= 1
        try:
            self._file.truncate(self.count * ENTRY.size)
        except OSError as problem:
            self._file.spoil(problem)
            raise

    def cut(self, offset: int) -> None:
        if self._file is None:
            return
        count = self._checked(lambda file: aborted.first_ending_at(file.read, self.count, offset))
        if count < self.count or self._file.size != count * ENTRY.size:
            self.count = count
            self._file.truncate(count * ENTRY.size)

    def clear(self) -> None:
        self.count = 0
        if self._file is not None:
            self._file.truncate(0)

    def check(self, base_offset: int, next_offset: int, *, whole: bool) -> None:
        if self._file is None:
            return
        if self._file.size != self.count * ENTRY.size:
            raise CorruptBatch(f"{self._path} ends within an entry")
        before = base_offset - 1
        for number in range(0, self.count if whole else 0, aborted.PAGE_ENTRIES):
            behind = min(number + aborted.PAGE_ENTRIES, self.count)
            for entry in self._checked(partial(_entries, first=number, behind=behind)):
                if not before < entry.last_offset < next_offset:
                    raise CorruptBatch(f"{self._path} has the marker at {entry.last_offset} behind that at {before}")
                before = entry.last_offset

    def all(self) -> list[AbortedTransaction]:
        return self._checked(partial(_entries, first=0, behind=self.count)) if self.count else []

    def collect(self, overlaps: Overlaps, *, wait: bool) -> None:
        if self.count:
            count = self.count
            self._checked(lambda file: overlaps.collect(file.read if wait else partial(read_now, file), count))

    def _checked(self, look: Callable[[File], R]) -> R:
        assert self._file is not None, "an entry is in a file"
        try:
            return look(self._file)
        except CorruptBatch as problem:
            raise CorruptBatch(f"{self._path} is damaged: {problem}") from None

    # The file

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def renamed(self, path: str) -> None:
        self._path = path

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _entries(file: File, first: int, behind: int) -> list[AbortedTransaction]:
    return aborted.entries(file.read, first, behind)
