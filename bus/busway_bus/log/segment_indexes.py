"""Offset index and time index of one segment, searched on disk.

Here: files, entries, candidates for a look-up.
Not here: the search (`index`), verification by an entry's batch (`segment`).
"""

from collections.abc import Iterator
from functools import partial

from busway_bus.kernel.files import File
from busway_bus.log.file_slice import ColdPages, FileSlice
from busway_bus.log.index import OFFSET_ENTRY, OFFSETS_MAX, TIME_ENTRY, Read, SparseIndex
from busway_protocol.records.batch import BatchHeader, CorruptBatch

_OFFSET, _POSITION, _TIMESTAMP, _HOLDER = 0, 1, 0, 1
Entry = tuple[int, int]


class SegmentIndexes:
    """Indexes of one segment, with absolute offsets. Look-ups may raise ColdPages without `wait`."""

    __slots__ = (
        "_base_offset",
        "_bytes_since_entry",
        "_indexed_timestamp",
        "_offset_file",
        "_offsets",
        "_time_file",
        "_times",
    )

    def __init__(self, base_offset: int, offset_file: File, time_file: File) -> None:
        self._base_offset = base_offset
        self._offset_file = offset_file
        self._time_file = time_file
        offset_file.disposable = time_file.disposable = True
        self._offsets = SparseIndex(OFFSET_ENTRY, offset_file.size)
        self._times = SparseIndex(TIME_ENTRY, time_file.size)
        self._indexed_timestamp = -1
        self._bytes_since_entry = 0

    @property
    def offset_entries(self) -> int:
        return self._offsets.count

    @property
    def time_entries(self) -> int:
        return self._times.count

    @property
    def whole(self) -> bool:
        """Whether neither file ends within an entry."""
        return self._offset_file.size == self._offsets.size_bytes and self._time_file.size == self._times.size_bytes

    @property
    def offset_bytes(self) -> int:
        return self._offsets.size_bytes

    # Adding entries

    def note(
        self, last_offset: int, position: int, size_bytes: int, *, interval: int, newest: int, holder: int
    ) -> None:
        """Note an appended batch, and add due entries. Call `undo` after a failure.

        Args:
            interval: bytes between entries.
            newest: largest timestamp so far, of the record at `holder`.
        """
        if self._bytes_since_entry > interval:
            self._offset_file.append([self._offsets.pack(last_offset - self._base_offset, position)])
            self.note_time(newest, holder)
            self._offsets.count += 1
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes

    def note_time(self, timestamp: int, offset: int) -> None:
        if timestamp > self._indexed_timestamp:
            self._time_file.append([self._times.pack(timestamp, offset - self._base_offset)])
            self._times.count += 1
            self._indexed_timestamp = timestamp

    def create(self) -> None:
        """Create missing files: Kafka reports a closed segment without them."""
        for file in (self._offset_file, self._time_file):
            if not file.size:
                file.append([b""])

    def undo(self) -> None:
        self._offset_file.truncate(self._offsets.size_bytes)
        self._time_file.truncate(self._times.size_bytes)

    def restart(self, bytes_since_entry: int) -> None:
        """Continue after existing entries; the bytes count from the last batch's start."""
        last = self.last_time()
        self._indexed_timestamp = last[0] if last else -1
        self._bytes_since_entry = bytes_since_entry

    # Candidates for look-ups

    def before(self, offset: int, *, wait: bool) -> Iterator[Entry]:
        """Iterate over (last offset, position) of batches ending up to `offset`.

        Nearest first, then back in doubling steps.
        """
        read = _reader(self._offset_file, wait=wait)
        relative = offset - self._base_offset
        number, step = self._offsets.find(_OFFSET, relative, read), 1
        while number >= 0:
            last, position = self._offsets.entry(number, read)
            if last <= relative:
                yield self._base_offset + last, position
            number, step = number - step, step * 2

    def at_or_behind(self, position: int, *, wait: bool) -> Entry | None:
        """Return (last offset, position) of the first indexed batch from `position`."""
        read = _reader(self._offset_file, wait=wait)
        number = self._offsets.find(_POSITION, position - 1, read) + 1
        if number == self._offsets.count:
            return None
        relative, at = self._offsets.entry(number, read)
        return self._base_offset + relative, at

    def earlier(self, timestamp_ms: int) -> Iterator[Entry]:
        """Iterate over (timestamp, offset) entries earlier than `timestamp_ms`, as `before`."""
        read = self._time_file.read
        number, step = self._times.find(_TIMESTAMP, timestamp_ms - 1, read), 1
        while number >= 0:
            timestamp, relative = self._times.entry(number, read)
            if timestamp < timestamp_ms:
                yield timestamp, self._base_offset + relative
            number, step = number - step, step * 2

    def last_batch(self, *, wait: bool = True) -> Entry | None:
        if not self._offsets.count:
            return None
        relative, position = self._offsets.entry(self._offsets.count - 1, _reader(self._offset_file, wait=wait))
        return self._base_offset + relative, position

    def last_time(self) -> Entry | None:
        """Return the last (largest timestamp, offset of its record)."""
        if not self._times.count:
            return None
        timestamp, relative = self._times.entry(self._times.count - 1, self._time_file.read)
        return timestamp, self._base_offset + relative

    # The files

    def cut(self, offset: int) -> None:
        relative = offset - self._base_offset - 1
        self._cut(
            self._offsets.find(_OFFSET, relative, self._offset_file.read) + 1,
            self._times.find(_HOLDER, relative, self._time_file.read) + 1,
        )

    def clear(self) -> None:
        self._cut(0, 0)

    def _cut(self, offsets: int, times: int) -> None:
        self._offset_file.truncate(self._offsets.truncate(offsets))
        self._time_file.truncate(self._times.truncate(times))
        self.restart(0)

    def sync(self) -> None:
        self._offset_file.sync()
        self._time_file.sync()

    def close(self) -> None:
        self._offset_file.close()
        self._time_file.close()


def check_offsets(header: BatchHeader, base_offset: int, next_offset: int) -> None:
    """Check a batch's offsets at the end of a segment, `next_offset`.

    No checksum covers the base offset; in a compacted log a gap is no damage.

    Raises:
        CorruptBatch: before the previous ones, or too far from the segment's base offset for the indexes.
    """
    if not next_offset <= header.base_offset <= header.last_offset <= base_offset + OFFSETS_MAX:
        raise CorruptBatch(
            f"a batch behind offset {next_offset - 1} says that it has offsets {header.base_offset} to {header.last_offset}"
        )


def _reader(file: File, *, wait: bool) -> Read:
    return file.read if wait else partial(read_now, file)


def read_now(file: File, position: int, size: int) -> bytes:
    """As `File.read`, raising ColdPages instead of waiting."""
    try:
        return file.read_now(position, size)
    except BlockingIOError:
        raise ColdPages(partial(FileSlice(file.lend(), position, size).warm, size)) from None
