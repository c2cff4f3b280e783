"""Both indexes of one segment, which stay on disk: what is asked is searched there.

What lives here: their files, the entries that are due as batches come, and which entries may answer a question. What does not: the
search (`index`), and the batches that entries name (`segment`), which tell whether an entry is to be believed.
"""

from collections.abc import Iterator
from functools import partial

from busway_bus.kernel.files import File
from busway_bus.log.file_slice import ColdPages, FileSlice
from busway_bus.log.index import OFFSET_ENTRY, OFFSETS_MAX, TIME_ENTRY, Read, SparseIndex
from busway_protocol.records.batch import BatchHeader, CorruptBatch

_OFFSET, _POSITION, _TIMESTAMP, _HOLDER = 0, 1, 0, 1
"""Columns of the offset index and of the time index."""
Entry = tuple[int, int]


class SegmentIndexes:
    """Of the segment that begins at `base_offset`; offsets go in and out whole, not relative to it."""

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
        """How many entries the offset index has."""
        return self._offsets.count

    @property
    def time_entries(self) -> int:
        """How many entries the time index has."""
        return self._times.count

    @property
    def whole(self) -> bool:
        """Whether neither file ends within an entry."""
        return self._offset_file.size == self._offsets.size_bytes and self._time_file.size == self._times.size_bytes

    @property
    def offset_bytes(self) -> int:
        """Size of the offset index."""
        return self._offsets.size_bytes

    # Entries as batches come

    def note(
        self, last_offset: int, position: int, size_bytes: int, *, interval: int, newest: int, holder: int
    ) -> None:
        """Take in a batch, and make entries when they are due; where that fails, call `undo`.

        Args:
            interval: bytes between two entries.
            newest: largest timestamp, that of this batch included; `holder` is the offset of a record that has it.
        """
        if self._bytes_since_entry > interval:
            self._offset_file.append([self._offsets.pack(last_offset - self._base_offset, position)])
            self.note_time(newest, holder)
            self._offsets.count += 1
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes

    def note_time(self, timestamp: int, offset: int) -> None:
        """Make an entry of the time index, if it is later than the last."""
        if timestamp > self._indexed_timestamp:
            self._time_file.append([self._times.pack(timestamp, offset - self._base_offset)])
            self._times.count += 1
            self._indexed_timestamp = timestamp

    def undo(self) -> None:
        """Cut off what a `note` that failed left in the files."""
        self._offset_file.truncate(self._offsets.size_bytes)
        self._time_file.truncate(self._times.size_bytes)

    def restart(self, bytes_since_entry: int) -> None:
        """Go on behind what an earlier process wrote: so many bytes follow the batch of the last entry, it included."""
        last = self.last_time()
        self._indexed_timestamp = last[0] if last else -1
        self._bytes_since_entry = bytes_since_entry

    # Entries that may answer

    def before(self, offset: int, *, wait: bool) -> Iterator[Entry]:
        """(Last offset, position) of batches that end at `offset` or before it, the nearest first, from there in ever larger steps:
        the first that is right is the one.

        Raises:
            ColdPages: without `wait`, the disk would have to be waited for.
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
        """(Last offset, position) of the first batch with an entry that is not before `position`, None where there is none.

        Raises:
            ColdPages: without `wait`, the disk would have to be waited for.
        """
        read = _reader(self._offset_file, wait=wait)
        number = self._offsets.find(_POSITION, position - 1, read) + 1
        if number == self._offsets.count:
            return None
        relative, at = self._offsets.entry(number, read)
        return self._base_offset + relative, at

    def earlier(self, timestamp_ms: int) -> Iterator[Entry]:
        """(Timestamp, offset of a record that has it) before which no record is as late as `timestamp_ms`, in the same order."""
        read = self._time_file.read
        number, step = self._times.find(_TIMESTAMP, timestamp_ms - 1, read), 1
        while number >= 0:
            timestamp, relative = self._times.entry(number, read)
            if timestamp < timestamp_ms:
                yield timestamp, self._base_offset + relative
            number, step = number - step, step * 2

    def last_batch(self, *, wait: bool = True) -> Entry | None:
        """The last entry of the offset index: last offset and position of a batch."""
        if not self._offsets.count:
            return None
        relative, position = self._offsets.entry(self._offsets.count - 1, _reader(self._offset_file, wait=wait))
        return self._base_offset + relative, position

    def last_time(self) -> Entry | None:
        """The last entry of the time index: the largest timestamp, and the offset of a record that has it."""
        if not self._times.count:
            return None
        timestamp, relative = self._times.entry(self._times.count - 1, self._time_file.read)
        return timestamp, self._base_offset + relative

    # The files

    def cut(self, offset: int) -> None:
        """Forget the entries of batches that end at or behind `offset`."""
        relative = offset - self._base_offset - 1
        self._cut(
            self._offsets.find(_OFFSET, relative, self._offset_file.read) + 1,
            self._times.find(_HOLDER, relative, self._time_file.read) + 1,
        )

    def clear(self) -> None:
        """Forget all entries."""
        self._cut(0, 0)

    def _cut(self, offsets: int, times: int) -> None:
        self._offset_file.truncate(self._offsets.truncate(offsets))
        self._time_file.truncate(self._times.truncate(times))
        self.restart(0)

    def sync(self) -> None:
        """Return when they are on disk: once that is known, a start need not read the batches to believe them."""
        self._offset_file.sync()
        self._time_file.sync()

    def close(self) -> None:
        """Close the files without syncing."""
        self._offset_file.close()
        self._time_file.close()


def check_offsets(header: BatchHeader, base_offset: int, next_offset: int) -> None:
    """Check the offsets of a batch that ends a segment up to now.

    No checksum covers the base offset, and in a compacted log a gap before it is no damage.

    Args:
        base_offset: of the segment; `next_offset` is the one behind its other batches.

    Raises:
        CorruptBatch: they are not behind the others, or too far from the segment's own for its indexes.
    """
    if not next_offset <= header.base_offset <= header.last_offset <= base_offset + OFFSETS_MAX:
        raise CorruptBatch(
            f"a batch behind offset {next_offset - 1} says that it has offsets {header.base_offset} to {header.last_offset}"
        )


def _reader(file: File, *, wait: bool) -> Read:
    return file.read if wait else partial(read_now, file)


def read_now(file: File, position: int, size: int) -> bytes:
    """What `File.read` gives, without a wait.

    Raises:
        ColdPages: the disk would have to be waited for.
    """
    try:
        return file.read_now(position, size)
    except BlockingIOError:
        raise ColdPages(partial(FileSlice(file.lend(), position, size).warm, size)) from None
