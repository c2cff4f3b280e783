"""Which aborted transactions a reader of committed records has to know (KIP-98), in Kafka's `.txnindex` format.

What lives here: one entry, the search in an index that is read through a function, and how many a reader is told. What does not: files
(`transaction_index`), and which segments are looked at (`partition_log`).

An entry is written with the marker that aborts, so entries are in the order of their markers. Each has the last stable offset that
held from then on: what is read below that needs no entry that comes later.
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
"""At most so many bytes of the index, from a position on."""


class AbortedTransaction(NamedTuple):
    """A producer whose records from `first_offset` to `last_offset`, that of its marker, were rolled back."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    @classmethod
    def of(cls, ended: Ended) -> "AbortedTransaction":
        """The entry of a transaction that was aborted."""
        return cls(ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)

    def packed(self) -> bytes:
        """As it is written to the end of an index."""
        return ENTRY.pack(_VERSION, *self)


def entries(read: Read, first: int, behind: int) -> list[AbortedTransaction]:
    """The entries from number `first` to before number `behind`.

    Raises:
        CorruptBatch: they are not there, or no entries.
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
    """Number of the first entry whose marker is at `offset` or behind it; `count`, that of all entries, where there is none.

    Raises:
        CorruptBatch: as of `entries`.
    """
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if entries(read, middle, middle + 1)[0].last_offset < offset:
            low = middle + 1
        else:
            high = middle
    return low


class Overlaps:
    """The aborted transactions that somebody has to know who reads from `offset` on to before `upper`.

    Attributes:
        upper: less than was asked for where there would be too many transactions.
        complete: whether no entry that comes later matters.
    """

    __slots__ = ("_heap", "_limit", "_offset", "complete", "upper")

    def __init__(self, offset: int, upper: int, limit: int = ABORTED_PER_FETCH_MAX) -> None:
        self._offset = offset
        self._limit = limit
        self._heap: list[tuple[int, int]] = []
        """Where each transaction begins, the last one first, by the negative offset, and whose it is."""
        self.upper = upper
        self.complete = False

    @property
    def transactions(self) -> list[tuple[int, int]]:
        """(Producer id, first offset) of each, in the order of the offsets."""
        return sorted(((producer, -begin) for begin, producer in self._heap), key=lambda entry: entry[1])

    def collect(self, read: Read, count: int) -> None:
        """Take in the index of one more segment, the next one, with so many entries.

        Raises:
            CorruptBatch: as of `entries`.
        """
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
        else:  # all of them begin before what is read, so reading less would spare none
            heappush(self._heap, (begin, producer))
