"""One segment of a log: a file of batches and its indexes.

Here: append, look-up, truncation, rebuild of the indexes.
Not here: the choice of the segment (`partition_log`), iteration (`batch_file`), trust in files of an earlier process
(`deferred_checks`).

An index entry (`segment_indexes`) is used only if its batch is at the given position, else an earlier one is tried: a
damaged index makes a look-up slower, never wrong.
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
    """Consecutive batches from `base_offset`.

    Reads may raise CorruptBatch, for damaged headers or by `unchecked`, and ColdPages without `wait`; changes OSError.

    Attributes:
        next_offset: the offset after the last batch; the base offset of the next segment while `unchecked` is set.
        modified_ms: last write, else opening, by the broker's clock.
        transactions: aborted transactions with markers in this segment.
        unchecked: check deferred until the first read (see `deferred_checks`).
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
        """Open the files, creating missing ones.

        Args:
            suffix: of the file names until the segment is swapped in.
            sizes: the directory's files, if known; these are opened lazily, and missing indexes created with their first entries.
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
                if size is not None:
                    opened.append(files.open_later(path, size))
                elif sizes is None or sizes or name == ".log":  # later only in a log without any file
                    opened.append(files.open(path))
                else:
                    opened.append(files.create_later(path))
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
        return f"{self._directory}/{file_name(self.base_offset, suffix)}{self._suffix}"

    @property
    def deleted(self) -> bool:
        return self._suffix == DELETED

    @property
    def size(self) -> int:
        return self._log.size

    # Writing

    def append(self, pieces: list[bytes | bytearray | memoryview], header: BatchHeader, config: LogConfig) -> None:
        """Write one batch with final offsets, completely or not at all."""
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
        self.transactions.append(ended)
        try:
            self.append(pieces, header, config)
        except OSError:
            self.transactions.take_back()
            raise

    def _take_back(self, position: int) -> None:
        """Undo an append without index entry; the next batch gets its offsets."""
        try:
            self._log.truncate(position)
            self.indexes.undo()
        except OSError as problem:
            self._log.spoil(problem)  # nothing may be appended after the damage
            raise

    def _note(self, header: BatchHeader, position: int, interval: int) -> None:
        """Index a batch; a failure changes only the files."""
        last, newest, holder = header.last_offset, self._max_timestamp, self._max_timestamp_offset
        if header.max_timestamp > newest:
            newest, holder = header.max_timestamp, last
        size = header.size_bytes
        self.indexes.note(last, position, size, interval=interval, newest=newest, holder=holder)
        self._max_timestamp, self._max_timestamp_offset = newest, holder
        self._positions.newest = (header.base_offset, position)
        self.next_offset = last + 1

    def full(self, more_bytes: int, last_offset: int, config: LogConfig) -> bool:
        return (
            self.size + more_bytes > config.segment_bytes
            or last_offset - self.base_offset > OFFSETS_MAX
            or self.indexes.offset_bytes >= config.segment_index_bytes - 8
        )

    def finish(self) -> None:
        self.indexes.note_time(self._max_timestamp, self._max_timestamp_offset)
        if self.size:
            self.indexes.create()

    # Looking up

    def check(self, *, wait: bool = True) -> None:
        if self.unchecked is not None:
            self.unchecked(self, wait)

    def position_of(self, offset: int, *, wait: bool = True) -> int:
        """Find the batch with `offset`, or the next."""
        self.check(wait=wait)
        if offset == self.next_offset:
            return self.size
        position = self._positions.get(offset)
        if position is None:
            position = self._search(offset, wait=wait)
            self._positions.start(offset, position)
        return position

    def _search(self, offset: int, *, wait: bool) -> int:
        for last_offset, start in self.indexes.before(offset, wait=wait):
            if 0 < start < self.size:
                position = self._batches.find(offset, start, after=last_offset, wait=wait)
                if position is not None:
                    return position
        position = self._batches.find(offset, 0, after=None, wait=wait)
        assert position is not None, "the first batch is where the file begins"
        return position

    def offset_near(self, position: int, *, wait: bool) -> int:
        """Return an offset close after all batches before byte `position`."""
        entry = self.indexes.at_or_behind(position, wait=wait)
        last_offset, at = entry or (-1, -1)
        if position <= at < self.size and self._batches.find(last_offset, at, after=last_offset, wait=wait) == at:
            return last_offset
        return self.next_offset

    def remember_end(self) -> None:
        """Cache the end's position: the next flushed offset and high watermark."""
        self._positions.end(self.next_offset, self.size)

    def position_before(self, timestamp_ms: int) -> int:
        """Find a position before which all timestamps are earlier."""
        self.check()
        for timestamp, offset in self.indexes.earlier(timestamp_ms):
            position = self._entry_position(timestamp, offset)
            if position is not None:
                return position
        return 0

    def _entry_position(self, timestamp: int, offset: int) -> int | None:
        """Find the batch of a time index entry. None if the entry is wrong."""
        if not self.base_offset <= offset < self.next_offset:
            return None
        position = self._search(offset, wait=True)
        header = self._batches.header(position)
        matches = header is not None and header.max_timestamp == timestamp and header.base_offset <= offset
        return position if matches else None

    @property
    def dated(self) -> bool:
        return self._max_timestamp != _UNDATED

    def undate(self) -> None:
        self._max_timestamp = _UNDATED

    @property
    def max_timestamp(self) -> int:
        """Largest record timestamp, else -1. Waits for the disk unless `dated`."""
        if self._max_timestamp == _UNDATED:
            self.check()
            if self._max_timestamp == _UNDATED:
                self.date()
        return self._max_timestamp

    def date(self) -> None:
        """Find the largest timestamp.

        It is in the time index's last entry or a later batch. Without entries no record has a timestamp.
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
        return self._batches.headers(position, wait=wait)

    def read(self, position: int, size: int) -> bytes:
        return self._log.read(position, size)

    def slice(self, position: int, size: int) -> FileSlice:
        return FileSlice(self._log.lend(), position, size)

    def batch_size(self, position: int, *, wait: bool = True) -> int:
        return self._batches.size_of(position, wait=wait)

    # What an earlier process wrote

    def take_end(self, start: int, *, up_to: int | None = None, wait: bool = True) -> int:
        """Set the end from the batches after `start`.

        `start`: the last index entry's position. Stops before offset `up_to`. Returns the end's position.
        """
        end, next_offset = start, self.base_offset
        for header, position in self.headers(start, wait=wait):
            if up_to is not None and header.base_offset >= up_to:
                break
            check_offsets(header, self.base_offset, next_offset)
            end = position + header.size_bytes
            next_offset = header.next_offset
            if self.dated and header.max_timestamp > self._max_timestamp:
                self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, header.last_offset
        self.next_offset = next_offset
        self.indexes.restart(end - start)
        return end

    def cut_indexes(self, offset: int) -> None:
        """Remove index entries of batches ending from `offset`. Updates the largest timestamp."""
        self._positions.clear()
        self.indexes.cut(offset)
        self.take_times()

    def take_times(self) -> None:
        self._max_timestamp, self._max_timestamp_offset = self.indexes.last_time() or (-1, -1)

    @property
    def times_end_well(self) -> bool:
        """Whether the time index is empty or its last entry matches."""
        last = self.indexes.last_time()
        return last is None or self._entry_position(*last) is not None

    def truncate(self, offset: int) -> None:
        """Cut the log file from the batch at `offset`; for the indexes see `truncation`.

        After an OSError a retry is safe.
        """
        position = self.position_of(offset)
        self._positions.clear()
        self._log.truncate(position)
        self.next_offset = min(self.next_offset, offset)  # at once: index entries behind the end are not used

    def recover(self, config: LogConfig, *, gaps_below: int, position: int = 0) -> tuple[int, CorruptBatch | None]:
        """Read all batches from `position`, with offset `next_offset`; rebuild the indexes.

        Returns the end of the intact part and the reason for a damaged rest. Nothing is cut here: only the flushed
        offset tells a torn tail from lost data. Offsets may be missing in a compacted log, and below `gaps_below`. The
        checksum does not cover the base offset.
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
        self._log.truncate(size)

    # The files

    def rewrite(self, position: int) -> None:
        """Write the batches again: the next sync includes an earlier process' failed writes."""
        self._log.rewrite(position)

    def sync(self) -> None:
        self._log.sync()

    def sync_indexes(self) -> None:
        """Sync the indexes: a start trusts them unread."""
        self.indexes.sync()
        self.transactions.sync()

    def close(self) -> None:
        self._log.close()
        self.indexes.close()
        self.transactions.close()

    def rename(self, suffix: str) -> None:
        """Change the files' suffix durably.

        After an OSError a retry is safe.
        """
        again = False
        for name in self._names():
            try:
                self._files.rename(self.path(name), f"{self._directory}/{file_name(self.base_offset, name)}{suffix}")
            except FileNotFoundError:
                again = True
        if again:  # an earlier attempt failed after its rename
            self._files.sync_directory(self._directory)
        self._suffix = suffix
        self.transactions.renamed(self.path(TRANSACTIONS))

    def delete(self) -> None:
        """Remove the files. After a failure the rest is readable, a retry safe."""
        for name in self._names():
            self._files.remove(self.path(name))
        self.close()

    def _names(self) -> Iterator[str]:
        return (name for name in SEGMENT_FILES if name != TRANSACTIONS or self.transactions.there)
