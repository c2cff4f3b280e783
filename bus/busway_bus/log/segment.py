"""One segment of a log: a file of batches and its indexes.

What lives here: append, find an offset or a time, truncate, build the indexes anew, over any `Files`. What does not: which segment is
meant (`partition_log`), going through the batches (`batch_file`), and whether files that an earlier process wrote are to be believed
(`trust`).

An entry of an index (`segment_indexes`) is believed when the batch that it names is where it says; where it is not, an earlier entry
does, so that a damaged index makes a look-up slower and never wrong.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from busway_bus.kernel.files import File, Files
from busway_bus.log.aborted import AbortedTransaction
from busway_bus.log.batch_file import BatchFile
from busway_bus.log.file_names import DELETED, SEGMENT_FILES, TRANSACTIONS, file_name
from busway_bus.log.file_slice import FileSlice
from busway_bus.log.index import OFFSETS_MAX
from busway_bus.log.log_config import LogConfig
from busway_bus.log.positions import Positions
from busway_bus.log.segment_indexes import SegmentIndexes, check_offsets
from busway_bus.log.transaction_index import TransactionIndex
from busway_protocol.records.batch import BatchHeader, CorruptBatch, verify_crc

_UNDATED: Final = -2


class Segment:
    """Batches from `base_offset` on.

    Attributes:
        size: bytes of the log file.
        next_offset: the offset behind the last batch; where the next segment begins as long as it is `unchecked`.
        modified_ms: when it was last written to, or else opened, by the broker's clock.
        indexes: of its batches.
        transactions: the aborted ones whose markers are in it.
        unchecked: the look at the files that was put off until somebody reads them, which may raise CorruptBatch (see `trust`).
    """

    __slots__ = (
        "_batches",
        "_directory",
        "_files",
        "_log",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_positions",
        "_suffix",
        "base_offset",
        "created_ms",
        "indexes",
        "modified_ms",
        "next_offset",
        "transactions",
        "unchecked",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        created_ms: int,
        *,
        suffix: str = "",
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """Take the files, which are made when they are not there.

        Args:
            suffix: follows their names until the segment takes its place.
            sizes: of the files in the directory, by name, where that is known: those in it are opened when they are needed.
        """
        self._files = files
        self._directory = directory
        self._suffix = suffix
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.created_ms = self.modified_ms = created_ms
        self._max_timestamp = self._max_timestamp_offset = -1
        opened: list[File] = []
        try:
            for name in (".log", ".index", ".timeindex"):
                size = None if sizes is None else sizes.get(file_name(base_offset, name) + suffix)
                path = self.path(name)
                opened.append(files.open(path) if size is None else files.open_later(path, size))
        except OSError:
            for file in opened:
                file.close()
            raise
        self._log = opened[0]
        self._batches = BatchFile(opened[0], self.path(".log"))
        self.indexes = SegmentIndexes(base_offset, opened[1], opened[2])
        size = None if sizes is None else sizes.get(file_name(base_offset, TRANSACTIONS) + suffix)
        self.transactions = TransactionIndex(files, self.path(TRANSACTIONS), size)
        self._positions = Positions()
        self.unchecked: Callable[[Segment, bool], None] | None = None

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

    # Writing

    def append(self, pieces: list[bytes | bytearray | memoryview], header: BatchHeader, config: LogConfig) -> None:
        """Write one batch whose header has its final offsets, all of it or an OSError."""
        position = self._log.size
        self._log.append(pieces)
        try:
            self._note(header, position, config.index_interval_bytes)
        except OSError:
            self._take_back(position)
            raise

    def append_abort(
        self,
        pieces: list[bytes | bytearray | memoryview],
        header: BatchHeader,
        config: LogConfig,
        ended: AbortedTransaction,
    ) -> None:
        """As `append`, of the marker that aborts a transaction."""
        self.transactions.append(ended)
        try:
            self.append(pieces, header, config)
        except OSError:
            self.transactions.take_back()
            raise

    def _take_back(self, position: int) -> None:
        """Undo an append whose index entry could not be written: its offsets will be given to another batch."""
        try:
            self._log.truncate(position)
            self.indexes.undo()
        except OSError as problem:
            self._log.spoil(problem)  # nothing may be written behind the damage
            raise

    def _note(self, header: BatchHeader, position: int, interval: int) -> None:
        """Index a batch; where that fails, nothing has changed but the files."""
        last, newest, holder = header.last_offset, self._max_timestamp, self._max_timestamp_offset
        if header.max_timestamp > newest:
            newest, holder = header.max_timestamp, last
        size = header.size_bytes
        self.indexes.note(last, position, size, interval=interval, newest=newest, holder=holder)
        self._max_timestamp, self._max_timestamp_offset = newest, holder
        self.next_offset = last + 1

    def full(self, more_bytes: int, last_offset: int, config: LogConfig) -> bool:
        """Whether a batch of `more_bytes` that ends at `last_offset` belongs into a new segment."""
        return (
            self.size + more_bytes > config.segment_bytes
            or last_offset - self.base_offset > OFFSETS_MAX
            or self.indexes.offset_bytes >= config.segment_index_bytes - 8
        )

    def finish(self) -> None:
        """Close the time index with its last entry, as a roll does."""
        self.indexes.note_time(self._max_timestamp, self._max_timestamp_offset)

    # Looking up

    def check(self, *, wait: bool = True) -> None:
        """Have the look that was put off.

        Raises:
            CorruptBatch: records are damaged or missing.
            ColdPages: without `wait`, the disk would have to be waited for.
        """
        if self.unchecked is not None:
            self.unchecked(self, wait)

    def position_of(self, offset: int, *, wait: bool = True) -> int:
        """Position of the batch that holds `offset`, or of the first one behind it.

        Raises:
            CorruptBatch: a header is damaged on disk.
            ColdPages: without `wait`, the disk would have to be waited for.
        """
        self.check(wait=wait)
        if offset == self.next_offset:
            return self.size
        position = self._positions.get(offset)
        if position is None:
            position = self._search(offset, wait=wait)
            self._positions.start(offset, position)
        return position

    def _search(self, offset: int, *, wait: bool) -> int:
        """As `position_of`, from the last believable index entry on that ends at or before `offset`."""
        for last_offset, start in self.indexes.before(offset, wait=wait):
            if 0 < start < self.size:
                position = self._batches.find(offset, start, after=last_offset, wait=wait)
                if position is not None:
                    return position
        position = self._batches.find(offset, 0, after=None, wait=wait)
        assert position is not None, "the first batch is where the file begins"
        return position

    def offset_near(self, position: int, *, wait: bool) -> int:
        """An offset that comes after all that is before byte `position`, and not long after it.

        Raises:
            ColdPages: without `wait`, the disk would have to be waited for.
        """
        entry = self.indexes.at_or_behind(position, wait=wait)
        last_offset, at = entry or (-1, -1)
        if position <= at < self.size and self._batches.find(last_offset, at, after=last_offset, wait=wait) == at:
            return last_offset
        return self.next_offset

    def remember_end(self) -> None:
        """Keep where the segment ends now: what is on disk, and so the high watermark, will be there soon."""
        self._positions.end(self.next_offset, self.size)

    def position_before(self, timestamp_ms: int) -> int:
        """Position of a batch before which no record has this timestamp or a later one.

        Raises:
            CorruptBatch: a header is damaged on disk.
        """
        self.check()
        for timestamp, offset in self.indexes.earlier(timestamp_ms):
            position = self._entry_position(timestamp, offset)
            if position is not None:
                return position
        return 0

    def _entry_position(self, timestamp: int, offset: int) -> int | None:
        """Position of the batch that an entry of the time index names; None where there is no such batch."""
        if not self.base_offset <= offset < self.next_offset:
            return None
        position = self._search(offset, wait=True)
        header = self._batches.header(position)
        matches = header is not None and header.max_timestamp == timestamp and header.base_offset <= offset
        return position if matches else None

    @property
    def dated(self) -> bool:
        """Whether the largest timestamp is at hand."""
        return self._max_timestamp != _UNDATED

    def undate(self) -> None:
        """Let the largest timestamp be found when it is asked for."""
        self._max_timestamp = _UNDATED

    @property
    def max_timestamp(self) -> int:
        """Largest record timestamp, -1 when there is none. Waits for the disk where it is not `dated`.

        Raises:
            CorruptBatch: a header is damaged on disk.
        """
        if self._max_timestamp == _UNDATED:
            self.check()
            if self._max_timestamp == _UNDATED:
                self.date()
        return self._max_timestamp

    def date(self) -> None:
        """Find the largest timestamp: the last entry of the time index has it, or a batch behind the one that it names. Without any
        entry no record has one.

        Raises:
            CorruptBatch: a header is damaged on disk.
        """
        newest, holder, start = -1, -1, self.size
        last = self.indexes.last_time()
        if last is not None:
            start = 0
            position = self._entry_position(*last)
            if position is not None:
                (newest, holder), start = last, position
        for header, _ in self.headers(start):
            if header.max_timestamp > newest:
                newest, holder = header.max_timestamp, header.last_offset
        self._max_timestamp, self._max_timestamp_offset = newest, holder

    # Reading

    def headers(self, position: int = 0, *, wait: bool = True) -> Iterator[tuple[BatchHeader, int]]:
        """Headers of the batches from `position` on, with their positions; ends where too little for a header is left.

        Raises:
            CorruptBatch: a header is damaged, or its batch reaches beyond the file.
            ColdPages: without `wait`, the disk would have to be waited for.
        """
        return self._batches.headers(position, wait=wait)

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
        return self._batches.size_of(position, wait=wait)

    # What an earlier process wrote

    def take_end(self, start: int, *, up_to: int | None = None, wait: bool = True) -> int:
        """Go over the batches from `start` on, the position of the last index entry, and take the end of the segment from them;
        answers the position where they end.

        Args:
            up_to: stop before this offset.

        Raises:
            CorruptBatch, ColdPages: as of `headers`.
        """
        self.next_offset = self.base_offset
        end = start
        for header, position in self.headers(start, wait=wait):
            if up_to is not None and header.base_offset >= up_to:
                break
            check_offsets(header, self.base_offset, self.next_offset)
            end = position + header.size_bytes
            self.next_offset = header.next_offset
            if self.dated and header.max_timestamp > self._max_timestamp:
                self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, header.last_offset
        self.indexes.restart(end - start)
        return end

    def cut_indexes(self, offset: int) -> None:
        """Forget the entries of batches that end at or behind `offset`, and take the largest timestamp from what stays."""
        self._positions.clear()
        self.indexes.cut(offset)
        self.take_times()

    def take_times(self) -> None:
        """Let the largest timestamp be what the last entry of the time index says."""
        self._max_timestamp, self._max_timestamp_offset = self.indexes.last_time() or (-1, -1)

    @property
    def times_end_well(self) -> bool:
        """Whether the last entry of the time index, if there is any, names a batch.

        Raises:
            CorruptBatch: a header is damaged on disk.
        """
        last = self.indexes.last_time()
        return last is None or self._entry_position(*last) is not None

    def truncate(self, offset: int) -> None:
        """Cut everything at and behind `offset`, which begins a batch."""
        position = self.position_of(offset)
        self._log.truncate(position)
        self.cut_indexes(offset)
        self.transactions.cut(offset)
        last = self.indexes.last_batch()
        self.take_end(0 if last is None else last[1])
        if not self.times_end_well:
            self.date()

    def recover(self, config: LogConfig, *, gaps_below: int, position: int = 0) -> tuple[int, CorruptBatch | None]:
        """Read every batch from `position` on, where `next_offset` is, index them anew and answer where the intact part ends, and
        why there.

        Nothing is cut here: whether a damaged end is a torn tail or lost data depends on what was flushed. Where the log was
        compacted, up to `gaps_below`, offsets may be missing; the checksum does not cover the base offset.
        """
        if not position:
            self._positions.clear()
            self.indexes.clear()
            self.next_offset = self.base_offset
            self._max_timestamp = self._max_timestamp_offset = -1
        end = position
        try:
            for header, batch, start in self._batches.batches(position):
                gap = header.base_offset - self.next_offset
                if gap < 0 or (gap and not config.compacted and header.base_offset >= gaps_below):
                    raise CorruptBatch(f"offset {header.base_offset} comes after {self.next_offset - 1}")
                check_offsets(header, self.base_offset, self.next_offset)
                verify_crc(batch, header)
                self._note(header, start, config.index_interval_bytes)
                end = start + header.size_bytes
        except CorruptBatch as problem:
            return end, problem
        return end, None if end == self.size else CorruptBatch(f"{self.size - end} bytes at the end are no whole batch")

    def cut(self, size: int) -> None:
        """Cut the log file to its intact part."""
        self._log.truncate(size)

    # The files

    def rewrite(self, position: int) -> None:
        """Have the next sync write the batches from `position` on, also those that an earlier process could not."""
        self._log.rewrite(position)

    def sync(self) -> None:
        """Return when the batches are on disk."""
        self._log.sync()

    def sync_indexes(self) -> None:
        """Return when the indexes are on disk: once that is known, a start need not read the batches to believe them."""
        self.indexes.sync()
        self.transactions.sync()

    def close(self) -> None:
        """Close the files without syncing."""
        self._log.close()
        self.indexes.close()
        self.transactions.close()

    def rename(self, suffix: str) -> None:
        """Give the files another ending, durably; readers that have them open do not notice.

        Raises:
            OSError: the disk failed; it may be tried again.
        """
        again = False
        for name in self._names():
            try:
                self._files.rename(self.path(name), f"{self._directory}/{file_name(self.base_offset, name)}{suffix}")
            except FileNotFoundError:
                again = True
        if again:  # it was renamed by an attempt that failed behind it
            self._files.sync_directory(self._directory)
        self._suffix = suffix
        self.transactions.renamed(self.path(TRANSACTIONS))

    def delete(self) -> None:
        """Remove the segment's files."""
        self.close()
        for name in self._names():
            self._files.remove(self.path(name))

    def _names(self) -> Iterator[str]:
        return (name for name in SEGMENT_FILES if name != TRANSACTIONS or self.transactions.there)
