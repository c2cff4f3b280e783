"""Log of one partition: segments, start and end, producers, leader epochs.

What lives here: append, read, roll, truncation, deletion. What does not: the start-up scan (`recovery`), look-ups by time
(`times`), waiting for the disk (`flusher`), clocks (times come in), and who may write (`replication`). What a client sends is looked
through once (`inspection`), what is read never. Neither appends, reads nor rolls wait for the disk.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence

from busway_bus.kernel.files import Files
from busway_bus.kernel.transactions import EndTransaction
from busway_bus.log import deleted, reading, times
from busway_bus.log.aborted import AbortedTransaction
from busway_bus.log.append_info import AppendInfo, marker_batch, stamped
from busway_bus.log.deleted import Deleted, DeletedSegments
from busway_bus.log.file_names import EPOCHS, SNAPSHOT
from busway_bus.log.file_slice import FileSlice
from busway_bus.log.flush_point import FlushPoint
from busway_bus.log.inspection import Inspected, finished, inspect
from busway_bus.log.log_config import LogConfig
from busway_bus.log.producer_entry import ProducersAt
from busway_bus.log.producer_state import Verification
from busway_bus.log.reading import Extent
from busway_bus.log.recovery import CorruptLog, recover, replayed
from busway_bus.log.retention import expendable
from busway_bus.log.segment import Segment
from busway_bus.log.side_files import SideFiles
from busway_bus.log.snapshots import SnapshotSchedule
from busway_bus.log.validate import check_batch
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import (
    BatchHeader,
    read_header,
)
from busway_protocol.records.control import TransactionMarker
from busway_protocol.types import Buffer

logger = logging.getLogger("busway.log")

__all__ = ["AppendInfo", "CorruptLog", "Extent", "FlushPoint", "PartitionLog"]


class PartitionLog:
    """One partition's records on disk.

    Attributes:
        start_offset: first offset that may be read.
        flushed_offset: everything below it is on disk.
        was_cut: whether a damaged or torn end was cut off when the log was opened.
        kept: what other threads write beside it.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        *,
        now_ms: int,
        flushed: int = 0,
        cleaned: int = 0,
        clean: bool = False,
    ) -> None:
        """Open the log in `directory`, an empty one where nothing is there; the arguments are those of `recovery.recover`.

        Raises:
            CorruptLog: data below the recovery point is damaged.
        """
        self._files = files
        self.directory = directory
        self.kept = SideFiles(files, directory)
        self.config = config
        recovered = recover(files, directory, config, now_ms=now_ms, flushed=flushed, cleaned=cleaned, clean=clean)
        self._segments = recovered.segments
        between = [recovered.newest_snapshot] if recovered.newest_snapshot > self._segments[-1].base_offset else []
        self._snapshots = SnapshotSchedule(recovered.proven_bytes, between)
        self.epochs = recovered.epochs
        self.producers = recovered.producers
        self._rolled: list[tuple[Segment, ProducersAt]] = []
        self._new_epoch = recovered.new_epoch
        self.was_cut = recovered.was_cut
        self._undated = False
        self._has_aborted = any(segment.transactions.count for segment in self._segments)
        self._deleted = DeletedSegments(files, directory, self.kept, recovered.start)
        self.start_offset = max(self._segments[0].base_offset, recovered.start)
        self.flushed_offset = self.end_offset

    # What is there

    @property
    def closed(self) -> bool:
        """Whether the files are closed."""
        return self.kept.closed

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._segments[-1].next_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction begins that has not ended, None where all have."""
        return self.producers.first_unstable_offset

    @property
    def active(self) -> Segment:
        """The segment that is written to."""
        return self._segments[-1]

    # Writing

    def append(self, records: Buffer, *, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Look through the one batch that a client sent, and write it.

        Raises:
            KafkaError: the batch is refused (see `validate`, `inspection` and `producer_state`); nothing was written.
            OSError: the disk failed.
        """
        header = check_batch(records, self.config)
        batch = finished(inspect(records, header, self.config, now_ms))
        return self.append_inspected(batch, leader_epoch=leader_epoch, now_ms=now_ms)

    def append_inspected(
        self, batch: Inspected, *, leader_epoch: int, now_ms: int, verification: Verification | None = None
    ) -> AppendInfo:
        """Write a batch that was looked through.

        Args:
            verification: what its coordinator has said yes to, where it is the first of a transaction here.

        Raises:
            KafkaError: its sequence numbers are not next, or its transaction is not ongoing; nothing was written.
            OSError: the disk failed.
        """
        header = batch.header
        seen = self.producers.check(header, verification) if header.producer_id >= 0 else None
        if seen is not None:
            return AppendInfo(
                first_offset=seen.first_offset,
                last_offset=seen.last_offset,
                log_append_time_ms=seen.timestamp if self.config.message_timestamp_type == "LogAppendTime" else -1,
                log_start_offset=self.start_offset,
                duplicate=True,
            )
        return self._write(batch.records, header, leader_epoch, now_ms)

    def append_own(self, batch: Buffer, *, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Write a batch of this broker, without checks of limits and sequences.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, it is for a producer that another has taken over from.
            OSError: the disk failed.
        """
        header = read_header(batch)
        if header.producer_id >= 0:
            self.producers.check_epoch(header.producer_id, header.producer_epoch)
        return self._write(batch, header, leader_epoch, now_ms)

    def append_marker(self, marker: EndTransaction, *, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Write the end of a producer's transaction, whether it has one open here or not; nothing where there can be nothing to end, and
        the answer is that of a `duplicate` of what is last.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED; nothing was written.
            OSError: the disk failed.
        """
        if not self.producers.check_marker(marker):
            last = self.end_offset - 1
            return AppendInfo(last, last, log_append_time_ms=-1, log_start_offset=self.start_offset, duplicate=True)
        batch, written = marker_batch(marker, now_ms)
        return self._write(batch, read_header(batch), leader_epoch, now_ms, written)

    def _write(
        self,
        records: Buffer,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        marker: TransactionMarker | None = None,
    ) -> AppendInfo:
        first = self.end_offset
        last = first + header.last_offset_delta
        pieces, header = stamped(
            records, header, first=first, leader_epoch=leader_epoch, config=self.config, now_ms=now_ms
        )
        segment = self._segments[-1]
        if segment.full(header.size_bytes, last, self.config):
            self.roll(now_ms)
            segment = self._segments[-1]
        ended = None if marker is None else self.producers.ended_by(header, marker)
        if ended is not None and ended.aborted:
            segment.append_abort(pieces, header, self.config, AbortedTransaction.of(ended))
            self._has_aborted = True
        else:
            segment.append(pieces, header, self.config)
        segment.modified_ms = now_ms
        self._new_epoch |= self.epochs.assign(leader_epoch, first)
        began = False
        if marker is None:
            began = self.producers.apply(header, now_ms)
        else:
            self.producers.end(header, marker, now_ms)
        return AppendInfo(
            first_offset=first,
            last_offset=last,
            log_append_time_ms=now_ms if self.config.message_timestamp_type == "LogAppendTime" else -1,
            log_start_offset=self.start_offset,
            began=began,
            ended=ended,
        )

    def roll(self, now_ms: int) -> None:
        """Start a new segment. The next flush syncs the old one, recovery handles a crash before that."""
        old = self._segments[-1]
        if old.size == 0:
            return
        old.finish()
        fresh = Segment(self._files, self.directory, old.next_offset, now_ms)
        self._segments.append(fresh)
        self._rolled.append((old, self.producers.taken()))
        self._snapshots.rolled()

    # Flushing

    def flush_point(self) -> FlushPoint:
        """What is to be synced for everything appended so far."""
        active = self._segments[-1]
        active.remember_end()
        epochs: bytes | None = None
        snapshot: ProducersAt | None = None
        outdated: tuple[int, ...] = ()
        if self._snapshots.due(active.size):
            snapshot = self.producers.taken()
            outdated = self._snapshots.taken(
                self.end_offset, active.size, {segment.base_offset for segment in self._segments}
            )
        if self._new_epoch and (self._rolled or snapshot is not None):
            epochs = self.epochs.text().encode()
            self._new_epoch = False  # a sync that fails is the last
        return FlushPoint(
            self.kept, tuple(self._rolled), active, self.end_offset, epochs, self.kept.truncations, snapshot, outdated
        )

    def flushed(self, point: FlushPoint) -> None:
        """Note that `point` is on disk."""
        if point.rolled:
            self._rolled = [entry for entry in self._rolled if entry not in point.rolled]
        if (
            point.truncations == self.kept.truncations
        ):  # else what took the place of the lost end is not what was synced
            self.flushed_offset = max(self.flushed_offset, point.end_offset)

    @property
    def wants_flush(self) -> bool:
        """Whether segments were rolled that no flush has covered yet; or a snapshot is due."""
        return bool(self._rolled) or self._snapshots.requested

    # Reading

    def extent(self, offset: int, *, up_to: int, wait: bool = True) -> Extent | None:
        """Locate the batches from the one with `offset`, below `up_to`. None if there are none.

        Only positions are looked up; no batch is read but for finding the first one.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE.
            CorruptBatch: a header is damaged on disk.
            ColdPages: without `wait`, the disk would have to be waited for.
        """
        if offset < self.start_offset or offset > self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {self.start_offset} to {self.end_offset}",
            )
        return reading.extent(self._segments, offset, up_to, wait=wait) if offset < up_to else None

    def slice(
        self, offset: int, max_bytes: int, *, up_to: int, min_one: bool = True, wait: bool = True
    ) -> FileSlice | None:
        """Return at most `max_bytes` of `extent` to be read later, or None. See `reading.cut`.

        Raises:
            KafkaError, CorruptBatch, ColdPages: as of `extent`.
        """
        extent = self.extent(offset, up_to=up_to, wait=wait)
        return None if extent is None else reading.cut(extent, max_bytes, min_one=min_one, wait=wait)

    def committed_slice(
        self, offset: int, max_bytes: int, *, up_to: int, min_one: bool = True, wait: bool = True
    ) -> tuple[FileSlice | None, Sequence[tuple[int, int]]]:
        """As `slice`, for a reader of committed records: with (producer id, first offset) of each aborted transaction that may have
        records in there.

        Raises:
            KafkaError, CorruptBatch, ColdPages: as of `extent`.
        """
        extent = self.extent(offset, up_to=up_to, wait=wait)
        batches = None if extent is None else reading.cut(extent, max_bytes, min_one=min_one, wait=wait)
        if extent is None or batches is None or not self._has_aborted:
            return batches, ()
        return reading.committed(self._segments, extent, batches, offset, up_to, wait=wait)

    def aborted(self, first: Segment, upper: int) -> Iterable[AbortedTransaction]:
        """Iterate over aborted transactions that start before `upper`, with markers in segment `first` or later.

        Raises:
            CorruptBatch: an index is damaged.
        """
        return reading.aborted(tuple(self._segments), first, upper)

    def read(self, offset: int, max_bytes: int, *, up_to: int, min_one: bool = True) -> bytes:
        """What `slice` is, read at once."""
        batches = self.slice(offset, max_bytes, up_to=up_to, min_one=min_one)
        return b"" if batches is None else batches.take(len(batches))

    def batches(self, offset: int = 0) -> Iterator[bytes]:
        """Every batch from `offset` on, whole, for those who load their state from a log."""
        for segment in self._segments[reading.segment_at(self._segments, max(offset, self.start_offset)) :]:
            segment.check()
            for header, position in segment.headers():
                if header.last_offset >= offset:
                    yield segment.read(position, header.size_bytes)

    # Looking up

    def search_time(self, timestamp_ms: int, *, up_to: int) -> times.Search:
        """Search (offset, timestamp, leader epoch) of the first record from `timestamp_ms`; see `times`."""
        return times.first_at(
            tuple(self._segments), timestamp_ms, start_offset=self.start_offset, up_to=up_to, config=self.config
        )

    def search_largest_time(self, *, up_to: int) -> times.Search:
        """The search for the first record with the largest timestamp."""
        return times.first_of_largest(
            tuple(self._segments), start_offset=self.start_offset, up_to=up_to, config=self.config
        )

    # Getting smaller

    def advance_start(self, offset: int, now_ms: int) -> None:
        """Let the log begin at `offset`; whole segments below it go (KIP-107).

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, the offset is behind the end.
        """
        if offset > self.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is behind the end, {self.end_offset}")
        self.start_offset = max(self.start_offset, offset)
        while len(self._segments) > 1 and self._segments[1].base_offset <= self.start_offset:
            segment = self._segments.pop(0)
            due = now_ms + self.config.file_delete_delay_ms
            self._deleted.append(Deleted(due, segment, snapshot=True, start=self._segments[0].base_offset))

    def maintain(self, now_ms: int) -> None:
        """Roll by age and delete by retention; the files follow with `remove_deleted`."""
        active = self._segments[-1]
        if active.size and now_ms - active.created_ms > self.config.roll_ms:
            self.roll(now_ms)
        if "delete" in self.config.cleanup_policy:
            self._retain(now_ms)
        self._snapshots.settle(self.active.size)

    @property
    def has_deleted(self) -> bool:
        """Whether `remove_deleted` is due. Files of deleted segments remain, or retention needs `date`."""
        return bool(self._deleted) or self._undated

    def remove_deleted(self, now_ms: int) -> None:
        """Rename the files of deleted segments, so that no crash brings them back, and remove those that are due; then look how old
        the next ones are.

        Waits for the disk: for another thread than the loop's.
        """
        self._deleted.remove(now_ms)
        if not self.closed:
            self.date(now_ms)

    def date(self, now_ms: int) -> None:
        """Look up how old the oldest segments are, as far as retention asks. Waits for the disk, likewise."""
        self._undated = False
        deleted.date(tuple(self._segments[:-1]), self.config, now_ms)

    def _retain(self, now_ms: int) -> None:
        count = expendable(self._segments, self.config, now_ms)
        self._undated = count < len(self._segments) - 1 and not self._segments[count].dated
        if count == len(self._segments):
            self.roll(now_ms)
        # What is not flushed yet stays until the flush of its roll is over.
        while count and self._segments[0].next_offset <= self.flushed_offset:
            self.advance_start(self._segments[1].base_offset, now_ms)
            count -= 1

    # Compaction (see `cleaner`)

    def closed_segments(self) -> tuple[Segment, ...]:
        """The segments that will not change any more and are on disk, oldest first."""
        waiting = {segment for segment, _ in self._rolled}
        closed = []
        for segment in self._segments[:-1]:
            if segment in waiting or segment.next_offset > self.flushed_offset:
                break
            closed.append(segment)
        return tuple(closed)

    def stable_segments(self) -> tuple[Segment, ...]:
        """Those of them that no open transaction has records in, or begins before."""
        unstable = self.first_unstable_offset
        closed = self.closed_segments()
        return closed if unstable is None else tuple(segment for segment in closed if segment.next_offset <= unstable)

    def swap_in(self, old: Sequence[Segment], new: Segment, now_ms: int) -> bool:
        """Replace the consecutive segments `old` by `new`. False if they were deleted meanwhile."""
        if self.closed or old[0] not in self._segments:
            return False
        at = self._segments.index(old[0])
        if self._segments[at : at + len(old)] != list(old) or old[-1] is self._segments[-1]:
            return False
        self._segments[at : at + len(old)] = [new]
        due = now_ms + self.config.file_delete_delay_ms
        for segment in old:
            self._deleted.append(Deleted(due, segment, snapshot=segment is not old[0]))
        return True

    def truncate(self, offset: int, now_ms: int) -> None:
        """Cut everything at and behind `offset`, as a follower does that has gone astray."""
        with self.kept.guard:
            self.kept.truncations += 1
        for name in self._files.list(self.directory):
            if name.endswith(SNAPSHOT) and int(name.removesuffix(SNAPSHOT)) > offset:
                self._files.remove(f"{self.directory}/{name}")
        while len(self._segments) > 1 and self._segments[-1].base_offset > offset:
            self._segments.pop().delete()
        self._segments[-1].truncate(offset)
        self._rolled = [entry for entry in self._rolled if entry[0] in self._segments[:-1]]
        self.epochs.truncate(offset)
        self._files.replace(f"{self.directory}/{EPOCHS}", self.epochs.text().encode())
        self.flushed_offset = min(self.flushed_offset, offset)
        self._snapshots.truncated(offset, self.active.size)
        self.producers = replayed(self._files, self.directory, self._segments, now_ms).in_place_of(self.producers)

    def close(self, *, clean: bool) -> None:
        """Close the files. A clean close syncs them and writes a producer snapshot."""
        if clean:
            self._segments[-1].finish()
            self._snapshots.requested = True
            self.flush_point().sync()
            self._deleted.remove(None)
        with self.kept.guard:
            self.kept.closed = True
        for segment in self._segments:
            segment.close()
        self._deleted.close()
