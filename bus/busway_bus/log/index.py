"""Sparse indexes over a segment, in Kafka's file format.

What lives here: the arithmetic of both indexes over bytes. `.index`: pairs of relative offset and file position, four bytes
each; `.timeindex`: timestamp in eight bytes and relative offset in four. An entry is made about every index.interval.bytes.
What does not: files. Entries can always be made again from the log, so nothing here is ever synced.
"""

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable
from operator import le, lt
from typing import Final

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")


def _words(code: str, content: bytes) -> "array[int]":
    """A file as four-byte numbers; a big segment has hundreds of thousands of them, so they are not unpacked one by one."""
    words = array(code, content)
    assert words.itemsize == 4, "C's int has four bytes"
    if sys.byteorder == "little":
        words.byteswap()
    return words


def _ascending(in_order: Callable[[int, int], bool], column: "array[int]") -> bool:
    return all(map(in_order, column, column[1:]))


class OffsetIndex:
    """Relative offset of a batch's last record → position of the batch, both ascending."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")

    @classmethod
    def from_bytes(cls, content: bytes) -> "OffsetIndex | None":
        """The index in a file's content; None when it contradicts itself, so that the caller builds it anew."""
        index = cls()
        if len(content) % OFFSET_ENTRY.size:
            return None
        words = _words("i", content)
        offsets, positions = words[0::2], words[1::2]
        if not (_ascending(lt, offsets) and _ascending(lt, positions)):
            return None
        index.offsets, index.positions = array("q", offsets), array("q", positions)
        return index

    def append(self, offset: int, position: int) -> bytes:
        """Remember an entry; answers its bytes for the file."""
        self.offsets.append(offset)
        self.positions.append(position)
        return OFFSET_ENTRY.pack(offset, position)

    def position(self, offset: int) -> int:
        """Where to start looking for the relative `offset`: the last batch known to begin at or before it."""
        # An entry names the last record of its batch, so only one strictly below or equal is a safe start.
        at = bisect_right(self.offsets, offset) - 1
        return self.positions[at] if at >= 0 else 0

    def truncate(self, offset: int) -> int:
        """Forget entries at or above the relative `offset`; answers the bytes that stay."""
        keep = bisect_right(self.offsets, offset - 1)
        del self.offsets[keep:], self.positions[keep:]
        return keep * OFFSET_ENTRY.size

    def __len__(self) -> int:
        return len(self.offsets)


class TimeIndex:
    """Largest timestamp so far → relative offset of the record that has it, both ascending."""

    __slots__ = ("offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("q")

    @classmethod
    def from_bytes(cls, content: bytes) -> "TimeIndex | None":
        """The index in a file's content; None when it contradicts itself."""
        index = cls()
        if len(content) % TIME_ENTRY.size:
            return None
        high, low, offsets = _words("i", content)[0::3], _words("I", content)[1::3], _words("i", content)[2::3]
        timestamps = array("q", [upper << 32 | lower for upper, lower in zip(high, low, strict=True)])
        if not (_ascending(le, timestamps) and _ascending(le, offsets)):
            return None
        index.timestamps, index.offsets = timestamps, array("q", offsets)
        return index

    def append(self, timestamp: int, offset: int) -> bytes:
        """Remember an entry if it is later than the last; answers its bytes, empty when it is not."""
        if self.timestamps and timestamp <= self.timestamps[-1]:
            return b""
        self.timestamps.append(timestamp)
        self.offsets.append(offset)
        return TIME_ENTRY.pack(timestamp, offset)

    def offset(self, timestamp: int) -> int:
        """A relative offset before which no record has a timestamp of `timestamp` or later."""
        at = bisect_right(self.timestamps, timestamp - 1) - 1
        return self.offsets[at] if at >= 0 else 0

    def truncate(self, offset: int) -> int:
        """Forget entries at or above the relative `offset`; answers the bytes that stay."""
        keep = bisect_right(self.offsets, offset - 1)
        del self.offsets[keep:], self.timestamps[keep:]
        return keep * TIME_ENTRY.size

    def __len__(self) -> int:
        return len(self.offsets)
