"""Iteration over the batches of a segment's log file.

Here: headers and positions.
Not here: expected offsets (`segment`), writing.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from busway_bus.kernel.files import File
from busway_bus.log.index import Read
from busway_bus.log.segment_indexes import read_now
from busway_protocol.records.batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    BatchHeader,
    CorruptBatch,
    read_header,
    read_span,
)

_LOOK_BYTES: Final = 8 * 1024
"""Read size between index entries, by default 4 KiB apart."""
_SCAN_BYTES: Final = 64 * 1024
"""Read size for headers."""
_BATCHES_BYTES: Final = 1024 * 1024
"""Read size for whole batches."""


class BatchFile:
    """Consecutive batches of a file. All reads may raise CorruptBatch, and ColdPages without `wait`."""

    __slots__ = ("_file", "_path")

    def __init__(self, file: File, path: str) -> None:
        self._file = file
        self._path = path

    def headers(self, position: int = 0, *, wait: bool = True) -> Iterator[tuple[BatchHeader, int]]:
        """Iterate over (header, position).

        It ends when less than a header remains. CorruptBatch also if a batch extends beyond the file.
        """
        size, window, start = self._file.size, b"", position
        read = self._reader(wait=wait)
        while position + HEADER_BYTES <= size:
            at = position - start
            if at + HEADER_BYTES > len(window):
                start, at = position, 0
                window = read(position, _SCAN_BYTES)
            header = read_header(window, at)
            if header.batch_length < HEADER_BYTES - LENGTH_OVERHEAD or position + header.size_bytes > size:
                raise self._too_long(position, header.size_bytes)
            yield header, position
            position += header.size_bytes

    def batches(self, position: int) -> Iterator[tuple[BatchHeader, memoryview, int]]:
        """As `headers`, with the batches."""
        window, start = memoryview(b""), position
        for header, at in self.headers(position):
            end = at + header.size_bytes
            if end > start + len(window):
                start, window = at, memoryview(self._file.read(at, max(_BATCHES_BYTES, header.size_bytes)))
            yield header, window[at - start : end - start], at

    def find(self, offset: int, start: int, *, after: int | None, wait: bool) -> int | None:
        """Return the position of the first batch ending from `offset`.

        `after`: the last offset that an index gives for the batch at `start`; None is returned if it differs.
        """
        size, window, window_start, position = self._file.size, b"", start, start
        read = self._reader(wait=wait)
        while position + HEADER_BYTES <= size:
            at = position - window_start
            if at + HEADER_BYTES > len(window):
                window_start, at = position, 0
                window = read(position, _LOOK_BYTES)
            try:
                last_offset, batch_bytes = read_span(window, at)
            except CorruptBatch:
                if after is None:
                    raise
                return None
            if after is not None and last_offset != after:
                return None
            after = None
            if position + batch_bytes > size:
                raise self._too_long(position, batch_bytes)
            if last_offset >= offset:
                return position
            position += batch_bytes
        return size

    def header(self, position: int) -> BatchHeader | None:
        """Read a header; None at the end."""
        data = self._file.read(position, HEADER_BYTES)
        return read_header(data) if len(data) == HEADER_BYTES else None

    def size_of(self, position: int, *, wait: bool) -> int:
        _, size = read_span(self._reader(wait=wait)(position, HEADER_BYTES))
        if position + size > self._file.size:
            raise self._too_long(position, size)
        return size

    def _reader(self, *, wait: bool) -> Read:
        return self._file.read if wait else partial(read_now, self._file)

    def _too_long(self, position: int, size: int) -> CorruptBatch:
        return CorruptBatch(f"the batch at byte {position} of {self._path} says it has {size} bytes")
