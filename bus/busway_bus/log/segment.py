"""One segment of a log: a file of batches and its two indexes.

What lives here: append, read a byte range, find an offset or a time, truncate, check and rebuild, over any `Files`. File names
are the base offset in twenty digits, as Kafka writes them. What does not: which segment is meant (`partition_log`).
"""

from collections.abc import Iterator
from typing import Final

from busway_bus.kernel.files import File, Files
from busway_bus.log.file_slice import ColdPages, FileSlice
from busway_bus.log.index import OffsetIndex, TimeIndex
from busway_bus.log.log_config import LogConfig
from busway_protocol.records.batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    BatchHeader,
    CorruptBatch,
    read_header,
    read_span,
    verify_crc,
)

OFFSETS_MAX: Final = 2**31 - 1
"""A segment's indexes hold offsets relative to its base in four bytes."""
_SCAN_BYTES: Final = 64 * 1024
_LOOK_BYTES: Final = 8 * 1024
"""Read at once between two index entries, which lie 4 KiB apart by default."""
_POSITIONS_MAX: Final = 64
"""Positions that are remembered: of so many flushes, and of so many readers' places."""
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
_FILES: Final = (".index", ".timeindex", ".log")
"""What a segment is made of, the log last: while it has its name, the segment is there."""


def file_name(base_offset: int, suffix: str) -> str:
    """`00000000000000000042.log` and the like."""
    return f"{base_offset:020d}{suffix}"


class Segment:
    """Batches from `base_offset` on.

    Attributes:
        size: bytes of the log file.
        next_offset: the offset behind the last batch.
        modified_ms: when it was last written to, or else opened, by the broker's clock.
        max_timestamp: largest record timestamp, -1 when there is none; `max_timestamp_offset` is a record that has it.
    """

    __slots__ = (
        "_bytes_since_entry",
        "_directory",
        "_ends",
        "_files",
        "_index_file",
        "_log",
        "_starts",
        "_suffix",
        "_time_file",
        "base_offset",
        "created_ms",
        "max_timestamp",
        "max_timestamp_offset",
        "modified_ms",
        "next_offset",
        "offsets",
        "times",
    )

    def __init__(self, files: Files, directory: str, base_offset: int, created_ms: int, suffix: str = "") -> None:
        """Open the files, made when they are not there; `suffix` follows their names until the segment takes its place."""
        self._files = files
        self._directory = directory
        self._suffix = suffix
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.created_ms = self.modified_ms = created_ms
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        opened: list[File] = []
        try:
            for name in (".log", ".index", ".timeindex"):
                opened.append(files.open(self.path(name)))  # noqa: PERF401 - those before one that fails are closed
        except OSError:
            for file in opened:
                file.close()
            raise
        self._log, self._index_file, self._time_file = opened
        self._index_file.disposable = self._time_file.disposable = True
        self.offsets = OffsetIndex()
        self.times = TimeIndex()
        self._bytes_since_entry = 0
        self._ends: dict[int, int] = {}
        self._starts: dict[int, int] = {}

    def path(self, suffix: str) -> str:
        """Path of one of the segment's files."""
        return f"{self._directory}/{file_name(self.base_offset, suffix)}{self._suffix}"

    @property
    def deleted(self) -> bool:
        """Whether the files are marked as deleted."""
        return self._suffix == DELETED

    @property
    def size(self) -> int:
        """Bytes of the log file."""
        return self._log.size

    def append(self, pieces: list[bytes | bytearray | memoryview], header: BatchHeader, config: LogConfig) -> None:
        """Write one batch whose header has its final offsets, all of it or an OSError."""
        position = self._log.size
        self._log.append(pieces)
        try:
            self._note(header, position, config.index_interval_bytes)
        except OSError:
            self._take_back(header, position)
            raise

    def _take_back(self, header: BatchHeader, position: int) -> None:
        """Undo an append whose index entry could not be written: its offsets will be given to another batch."""
        try:
            self._log.truncate(position)
            relative = header.last_offset - self.base_offset
            self._index_file.truncate(self.offsets.truncate(relative))
            self._time_file.truncate(self.times.truncate(relative))
        except OSError as problem:
            self._log.spoil(problem)  # nothing may be written behind the damage
            raise
        self._rescan()

    def _note(self, header: BatchHeader, position: int, interval: int) -> None:
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = header.last_offset
        if self._bytes_since_entry > interval:
            self._index_file.append([self.offsets.append(header.last_offset - self.base_offset, position)])
            self._index_time()
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size_bytes
        self.next_offset = header.last_offset + 1

    def _index_time(self) -> None:
        if self.max_timestamp >= 0:
            entry = self.times.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            if entry:
                self._time_file.append([entry])

    def full(self, more_bytes: int, last_offset: int, config: LogConfig) -> bool:
        """Whether a batch of `more_bytes` that ends at `last_offset` belongs into a new segment."""
        return (
            self.size + more_bytes > config.segment_bytes
            or last_offset - self.base_offset > OFFSETS_MAX
            or len(self.offsets) * 8 >= config.segment_index_bytes - 8
        )

    def finish(self) -> None:
        """Close the time index with its last entry, as a roll does."""
        self._index_time()

    def position_of(self, offset: int, *, wait: bool = True) -> int:
        """Position of the batch that holds `offset`, or of the first one behind it.

        Raises:
            CorruptBatch: a header is damaged on disk.
            ColdPages: without `wait`, the disk would have to be waited for.
        """
        if offset == self.next_offset:
            return self.size
        position = self._ends.get(offset)
        if position is None:
            position = self._starts.get(offset)
        if position is None:
            position = self._find(offset, self.offsets.position(offset - self.base_offset), wait=wait)
            _remember(self._starts, offset, position)
        return position

    def _find(self, offset: int, position: int, *, wait: bool) -> int:
        """As `position_of`, by going from batch to batch, from the one at `position` on."""
        size, window, start = self.size, b"", position
        while position + HEADER_BYTES <= size:
            at = position - start
            if at + HEADER_BYTES > len(window):
                start, at = position, 0
                window = self._look(position, _LOOK_BYTES, wait=wait)
            last_offset, batch_bytes = read_span(window, at)
            if position + batch_bytes > size:
                raise self._too_long(position, batch_bytes)
            if last_offset >= offset:
                return position
            position += batch_bytes
        return size

    def _look(self, position: int, size: int, *, wait: bool) -> bytes:
        if wait:
            return self._log.read(position, size)
        try:
            return self._log.read_now(position, size)
        except BlockingIOError:
            raise ColdPages(self.slice(position, min(size, self.size - position))) from None

    def remember_end(self) -> None:
        """Keep where the segment ends now: what is on disk, and so the high watermark, will be there soon."""
        _remember(self._ends, self.next_offset, self.size)

    def headers(self, position: int = 0) -> Iterator[tuple[BatchHeader, int]]:
        """Headers of the batches from `position` on, with their positions; ends where too little for a header is left.

        Raises:
            CorruptBatch: a header is damaged, or its batch reaches beyond the file.
        """
        size = self.size
        window = b""
        start = position
        while position + HEADER_BYTES <= size:
            at = position - start
            if at + HEADER_BYTES > len(window):
                start, at = position, 0
                window = self._log.read(position, _SCAN_BYTES)
            header = read_header(window, at)
            if header.batch_length < HEADER_BYTES - LENGTH_OVERHEAD or position + header.size_bytes > size:
                raise self._too_long(position, header.size_bytes)
            yield header, position
            position += header.size_bytes

    def read(self, position: int, size: int) -> bytes:
        """Bytes of the log file."""
        return self._log.read(position, size)

    def slice(self, position: int, size: int) -> FileSlice:
        """Bytes of the log file, to be read later."""
        return FileSlice(self._log.lend(), position, size)

    def batch_size(self, position: int, *, wait: bool = True) -> int:
        """Size in bytes of the batch at `position`.

        Raises:
            CorruptBatch: its header is damaged, or it reaches beyond the file.
            ColdPages: without `wait`, the disk would have to be waited for.
        """
        _, size = read_span(self._look(position, HEADER_BYTES, wait=wait))
        if position + size > self.size:
            raise self._too_long(position, size)
        return size

    def _too_long(self, position: int, size: int) -> CorruptBatch:
        return CorruptBatch(f"the batch at byte {position} of {self.path('.log')} says it has {size} bytes")

    def truncate(self, offset: int) -> None:
        """Cut everything at and behind `offset`, which begins a batch."""
        position = self.position_of(offset)
        self._log.truncate(position)
        relative = offset - self.base_offset
        self._index_file.truncate(self.offsets.truncate(relative))
        self._time_file.truncate(self.times.truncate(relative))
        self._ends.clear()
        self._starts.clear()
        self._rescan()

    def _rescan(self) -> None:
        self.max_timestamp = self.max_timestamp_offset = -1
        self.next_offset = self.base_offset
        for header, _ in self.headers():
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
            self.next_offset = header.last_offset + 1

    def load(self, config: LogConfig, *, closed: bool) -> bool:
        """Trust the files without reading all of them; answers whether the indexes deserve it.

        Args:
            closed: whether they were closed in order; otherwise the end of either index may be missing.
        """
        offsets = OffsetIndex.from_bytes(self._index_file.read(0, self._index_file.size))
        times = TimeIndex.from_bytes(self._time_file.read(0, self._time_file.size))
        if offsets is None or times is None:
            return False
        known = offsets.positions[-1] if len(offsets) else 0
        start = known
        if not len(times):
            start = 0
        elif not closed:
            start = min(known, offsets.position(times.offsets[-1]))
        self.offsets, self.times = offsets, times
        self.max_timestamp = self.max_timestamp_offset = -1
        if len(times):
            self.max_timestamp = times.timestamps[-1]
            self.max_timestamp_offset = times.offsets[-1] + self.base_offset
        try:
            end = self._walk(start, known, 0 if closed and len(offsets) else config.index_interval_bytes)
        except CorruptBatch:
            return False
        return end == self.size and (len(times) > 0 or self.max_timestamp < 0)

    def _walk(self, start: int, known: int, interval: int) -> int:
        """Read the headers from `start` on; answers where they end.

        Raises:
            CorruptBatch: the last index entry, for position `known`, is wrong, or entries that are due every `interval`
                bytes (0: not looked at) are missing behind it.
        """
        self._bytes_since_entry = 0
        end, met = start, not len(self.offsets)
        for header, position in self.headers(start):
            end = position + header.size_bytes
            self.next_offset = header.last_offset + 1
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
            if position == known and len(self.offsets):
                met = header.last_offset - self.base_offset == self.offsets.offsets[-1]
            elif position > known and 0 < interval < self._bytes_since_entry:
                raise CorruptBatch("entries of the offset index are missing")
            if position >= known:
                self._bytes_since_entry += header.size_bytes
        if not met:
            raise CorruptBatch("the last entry of the offset index names no batch")
        return end

    def recover(self, config: LogConfig, *, gaps_below: int) -> tuple[int, CorruptBatch | None]:
        """Read every batch, build the indexes anew and answer where the intact part ends, and why there.

        Nothing is cut here: whether a damaged end is a torn tail or lost data depends on what was flushed. Where the log was
        compacted, up to `gaps_below`, offsets may be missing; the checksum does not cover the base offset.
        """
        self._index_file.truncate(0)
        self._time_file.truncate(0)
        self.offsets, self.times = OffsetIndex(), TimeIndex()
        self.max_timestamp = self.max_timestamp_offset = -1
        self.next_offset = self.base_offset
        self._bytes_since_entry = 0
        self._ends.clear()
        self._starts.clear()
        end = 0
        try:
            for header, position in self.headers():
                gap = header.base_offset - self.next_offset
                if gap < 0 or (gap and not config.compacted and header.base_offset >= gaps_below):
                    raise CorruptBatch(f"offset {header.base_offset} comes after {self.next_offset - 1}")
                verify_crc(self._log.read(position, header.size_bytes), header)
                self._note(header, position, config.index_interval_bytes)
                end = position + header.size_bytes
        except CorruptBatch as problem:
            return end, problem
        return end, None if end == self.size else CorruptBatch(f"{self.size - end} bytes at the end are no whole batch")

    def cut(self, size: int) -> None:
        """Cut the log file to its intact part."""
        self._log.truncate(size)

    def sync(self) -> None:
        """Return when the batches are on disk; the indexes can always be made again."""
        self._log.sync()

    def close(self) -> None:
        """Close the files without syncing."""
        for opened in (self._log, self._index_file, self._time_file):
            opened.close()

    def rename(self, suffix: str) -> None:
        """Give the files another ending, durably; readers that have them open do not notice.

        Raises:
            OSError: the disk failed; it may be tried again.
        """
        again = False
        for name in _FILES:
            try:
                self._files.rename(self.path(name), f"{self._directory}/{file_name(self.base_offset, name)}{suffix}")
            except FileNotFoundError:
                again = True
        if again:  # it was renamed by an attempt that failed behind it
            self._files.sync_directory(self._directory)
        self._suffix = suffix

    def delete(self) -> None:
        """Remove the segment's files."""
        self.close()
        for name in _FILES:
            self._files.remove(self.path(name))


def _remember(positions: dict[int, int], offset: int, position: int) -> None:
    if len(positions) >= _POSITIONS_MAX:
        del positions[next(iter(positions))]
    positions[offset] = position
