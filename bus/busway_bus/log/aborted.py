"""Aborted transactions for isolation.level=read_committed (KIP-98), in Kafka's `.txnindex` format.

Here: entries, the search, the bound for one fetch.
Not here: files (`transaction_index`), the choice of segments (`partition_log`). Entries are ordered by abort marker.
Reads below an entry's last stable offset need no later one.
"""

import struct
from collections.abc import Callable
from heapq import heappush, heappushpop
from typing import Final, NamedTuple

from busway_bus.kernel.limits import ABORTED_PER_FETCH_MAX
from busway_bus.log.producer_state import Ended
from busway_protocol.records.batch import CorruptBatch

ENTRY: Final = struct.Struct(">hqqqq")
"""Version, producer id, first offset, offset of the marker, last stable offset."""
PAGE_ENTRIES: Final = 120
_VERSION: Final = 0

Read = Callable[[int, int], bytes]
"""Read (position, size): at most `size` bytes."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction; `last_offset` is its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    @classmethod
    def of(cls, ended: Ended) -> "AbortedTransaction":
        return cls(ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)

    def packed(self) -> bytes:
        return ENTRY.pack(_VERSION, *self)


def entries(read: Read, first: int, behind: int) -> list[AbortedTransaction]:
    """Read the entries from `first` to below `behind`.

    CorruptBatch: missing or invalid.
    """
    content = read(first * ENTRY.size, (behind - first) * ENTRY.size)
    if len(content) != (behind - first) * ENTRY.size:
        raise CorruptBatch("it ends too early")
    result = []
    for version, *fields in ENTRY.iter_unpack(content):
        entry = AbortedTransaction._make(fields)
        if version != _VERSION or not 0 <= entry.first_offset < entry.last_offset:
            raise CorruptBatch(f"there is no aborted transaction in version {version}, {entry}")
        result.append(entry)
    return result


def first_ending_at(read: Read, count: int, offset: int) -> int:
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if entries(read, middle, middle + 1)[0].last_offset < offset:
            low = middle + 1
        else:
            high = middle
    return low


class Overlaps:
    """Aborted transactions overlapping a read from `offset` to below `upper`.

    Attributes:
        upper: lowered if they exceed `limit`.
        complete: no later entry overlaps.
    """

    __slots__ = ("_heap", "_limit", "_offset", "complete", "upper")

    def __init__(self, offset: int, upper: int, limit: int = ABORTED_PER_FETCH_MAX) -> None:
        self._offset = offset
        self._limit = limit
        self._heap: list[tuple[int, int]] = []
        """Max-heap of (negative first offset, producer id)."""
        self.upper = upper
        self.complete = False

    @property
    def transactions(self) -> list[tuple[int, int]]:
        """(Producer id, first offset), by offset."""
        return sorted(((producer, -begin) for begin, producer in self._heap), key=lambda entry: entry[1])

    def collect(self, read: Read, count: int) -> None:
        number = first_ending_at(read, count, self._offset)
        while number < count and not self.complete:
            behind = min(number + PAGE_ENTRIES, count)
            for entry in entries(read, number, behind):
                self._add(entry)
                if entry.last_stable_offset >= self.upper:
                    self.complete = True
                    break
            number = behind

    def _add(self, entry: AbortedTransaction) -> None:
        if entry.first_offset >= self.upper:
            return
        new = (-entry.first_offset, entry.producer_id)
        if len(self._heap) < self._limit:
            heappush(self._heap, new)
            return
        begin, producer = heappushpop(self._heap, new)
        if -begin > self._offset:
            self.upper = -begin
        else:  # all begin at or before `offset`, so a lower `upper` would exclude none
            heappush(self._heap, (begin, producer))
