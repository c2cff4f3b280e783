"""Log of one partition: segments, start and end, producers, leader epochs.

Here: the operations; appends, reads and rolls do not wait for the disk.
Not here: the start-up scan (`recovery`), look-ups by time (`times`), syncs (`flusher`), leadership (`replication`).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from busway_bus.kernel.files import Files
from busway_bus.kernel.transactions import EndTransaction
from busway_bus.log import deleted_segments, reading, times, truncation
from busway_bus.log.aborted import AbortedTransaction
from busway_bus.log.append_info import AppendInfo, fetched, marker_batch, stamped
from busway_bus.log.deleted_segments import DeletedSegment, DeletedSegments
from busway_bus.log.epochs import LeaderEpochs
from busway_bus.log.file_names import EPOCHS
from busway_bus.log.file_slice import FileSlice
from busway_bus.log.flush_point import FlushPoint
from busway_bus.log.inspection import Inspected, finished, inspect
from busway_bus.log.log_config import LogConfig
from busway_bus.log.producer_entry import ProducersAt
from busway_bus.log.producer_state import ProducerState, Verification
from busway_bus.log.reading import Extent
from busway_bus.log.recovery import CorruptLog, recover, replayed
from busway_bus.log.restart import remove_records
from busway_bus.log.retention import expendable
from busway_bus.log.segment import Segment
from busway_bus.log.side_files import SideFiles
from busway_bus.log.snapshots import SnapshotSchedule
from busway_bus.log.validate import check_batch
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import BatchHeader, read_header
from busway_protocol.records.control import TransactionMarker
from busway_protocol.types import Buffer

logger = logging.getLogger("busway.log")

__all__ = ["AppendInfo", "CorruptLog", "Extent", "FlushPoint", "PartitionLog"]


class PartitionLog:
    """One partition's records on disk.

    Appends raise OSError if the disk fails; after a KafkaError nothing was written.

    Attributes:
        flushed_offset: end of what is on disk.
        committed: returns the high watermark of a log with several replicas, whose later records may be truncated:
            they are neither deleted by retention nor compacted.
        was_cut: a damaged or torn end was cut off at opening.
        busy: another thread cuts the log: nothing else may change it.
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
        self.busy = False
        self._undated = False
        self._has_aborted = any(segment.transactions.count for segment in self._segments)
        self._deleted = DeletedSegments(files, directory, self.kept, recovered.start)
        self.start_offset = max(self._segments[0].base_offset, recovered.start)
        self.flushed_offset = self.end_offset
        self.committed: Callable[[], int] | None = None

    # What is there

    @property
    def closed(self) -> bool:
        return self.kept.closed

    @property
    def _settled_offset(self) -> int:
        """End of what is on disk and will not be truncated."""
        return self.flushed_offset if self.committed is None else min(self.flushed_offset, self.committed())

    @property
    def end_offset(self) -> int:
        return self._segments[-1].next_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def first_unstable_offset(self) -> int | None:
        return self.producers.first_unstable_offset

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    # Writing

    def append(self, records: Buffer, *, leader_epoch: int, now_ms: int) -> AppendInfo:
        header = check_batch(records, self.config)
        batch = finished(inspect(records, header, self.config, now_ms))
        return self.append_inspected(batch, leader_epoch=leader_epoch, now_ms=now_ms)

    def append_inspected(
        self, batch: Inspected, *, leader_epoch: int, now_ms: int, verification: Verification | None = None
    ) -> AppendInfo:
        """Write an inspected batch, checked as by `ProducerState.check`."""
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
        """Write a batch of this broker, without checking limits and sequences.

        KafkaError: INVALID_PRODUCER_EPOCH, its producer was fenced.
        """
        header = read_header(batch)
        if header.producer_id >= 0:
            self.producers.check_epoch(header.producer_id, header.producer_epoch)
        return self._write(batch, header, leader_epoch, now_ms)

    def append_marker(self, marker: EndTransaction, *, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Write a transaction marker, also if no transaction is open here.

        If `check_marker` is False, nothing is written; the result is a `duplicate` with the last offset.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        if not self.producers.check_marker(marker):
            last = self.end_offset - 1
            return AppendInfo(last, last, log_append_time_ms=-1, log_start_offset=self.start_offset, duplicate=True)
        batch, written = marker_batch(marker, now_ms)
        return self._write(batch, read_header(batch), leader_epoch, now_ms, written)

    def append_as_follower(self, batch: Buffer, *, now_ms: int) -> AppendInfo:
        """Write a batch of the leader as it is; offsets that compaction removed are missing before it.

        Raises:
            CorruptBatch: the checksum is wrong, or the batch begins before the end of this log.
        """
        header, marker = fetched(batch, self.end_offset)
        return self._write(batch, header, header.partition_leader_epoch, now_ms, marker, pieces=[batch])

    def begin_epoch(self, leader_epoch: int) -> None:
        """Begin a leader epoch at the end of the log, where followers with other epochs truncate theirs (KIP-279)."""
        self._new_epoch |= self.epochs.assign(leader_epoch, self.end_offset)

    def end_epoch(self) -> None:
        """Forget an epoch that began at the end of the log; on disk with the next snapshot."""
        self.epochs.truncate(self.end_offset)
        self._new_epoch = True

    def _write(
        self,
        records: Buffer,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        marker: TransactionMarker | None = None,
        *,
        pieces: list[bytes | bytearray | memoryview] | None = None,
    ) -> AppendInfo:
        """Write a batch; `pieces` are its bytes with offset and epoch, else both are set."""
        first = self.end_offset if pieces is None else header.base_offset
        last = first + header.last_offset_delta
        if pieces is None:
            pieces, header = stamped(
                records, header, first=first, leader_epoch=leader_epoch, config=self.config, now_ms=now_ms
            )
        segment = self._segments[-1]
        size_bytes = header.size_bytes
        if segment.full(size_bytes, last, self.config):
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
            size_bytes=size_bytes,
            began=began,
            ended=ended,
        )

    def roll(self, now_ms: int) -> None:
        """Start a new segment. The next flush syncs the old one."""
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
        active = self._segments[-1]
        active.remember_end()
        epochs: bytes | None = None
        snapshot: ProducersAt | None = None
        outdated: tuple[int, ...] = ()
        if not self.busy and self._snapshots.due(active.size):  # an unfinished cut has not replaced the producers
            snapshot = self.producers.taken()
            outdated = self._snapshots.taken(
                self.end_offset, active.size, {segment.base_offset for segment in self._segments}
            )
        if self._new_epoch and (self._rolled or snapshot is not None):
            epochs = self.epochs.text().encode()
            self._new_epoch = False  # no retry is needed: a failed sync is final
        return FlushPoint(
            self.kept, tuple(self._rolled), active, self.end_offset, epochs, self.kept.truncations, snapshot, outdated
        )

    def flushed(self, point: FlushPoint) -> None:
        if point.rolled:
            self._rolled = [entry for entry in self._rolled if entry not in point.rolled]
        # Else the synced records were truncated and may have been replaced.
        if point.truncations == self.kept.truncations:
            self.flushed_offset = max(self.flushed_offset, point.end_offset)

    @property
    def wants_flush(self) -> bool:
        return bool(self._rolled) or self._snapshots.requested

    # Reading

    def extent(self, offset: int, *, up_to: int, wait: bool = True) -> Extent | None:
        """Locate the batches from the one with `offset`, below `up_to`.

        The other reads raise the same errors.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE.
            CorruptBatch: a header is damaged.
            ColdPages: only without `wait`.
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
        """Return at most `max_bytes` of `extent`, by `reading.cut`."""
        extent = self.extent(offset, up_to=up_to, wait=wait)
        return None if extent is None else reading.cut(extent, max_bytes, min_one=min_one, wait=wait)

    def committed_slice(
        self, offset: int, max_bytes: int, *, up_to: int, min_one: bool = True, wait: bool = True
    ) -> tuple[FileSlice | None, Sequence[tuple[int, int]]]:
        """As `slice`, for isolation.level=read_committed.

        Also (producer id, first offset) of aborted transactions that may have records in it.
        """
        extent = self.extent(offset, up_to=up_to, wait=wait)
        batches = None if extent is None else reading.cut(extent, max_bytes, min_one=min_one, wait=wait)
        if extent is None or batches is None or not self._has_aborted:
            return batches, ()
        return reading.committed(self._segments, extent, batches, offset, up_to, wait=wait)

    def aborted(self, first: Segment, upper: int) -> Iterable[AbortedTransaction]:
        return reading.aborted(tuple(self._segments), first, upper)

    def read(self, offset: int, max_bytes: int, *, up_to: int, min_one: bool = True) -> bytes:
        batches = self.slice(offset, max_bytes, up_to=up_to, min_one=min_one)
        return b"" if batches is None else batches.take(len(batches))

    def batches(self, offset: int = 0) -> Iterator[bytes]:
        for segment in self._segments[reading.segment_at(self._segments, max(offset, self.start_offset)) :]:
            segment.check()
            for header, position in segment.headers():
                if header.last_offset >= offset:
                    yield segment.read(position, header.size_bytes)

    # Looking up

    def search_time(self, timestamp_ms: int, *, up_to: int) -> times.Search:
        return times.first_at(
            tuple(self._segments), timestamp_ms, start_offset=self.start_offset, up_to=up_to, config=self.config
        )

    def search_largest_time(self, *, up_to: int) -> times.Search:
        return times.first_of_largest(
            tuple(self._segments), start_offset=self.start_offset, up_to=up_to, config=self.config
        )

    # Getting smaller

    def advance_start(self, offset: int, now_ms: int) -> None:
        """Raise the start offset; delete whole segments below it (KIP-107).

        KafkaError: OFFSET_OUT_OF_RANGE, it is after the end.
        """
        if offset > self.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is behind the end, {self.end_offset}")
        self.start_offset = max(self.start_offset, offset)
        while len(self._segments) > 1 and self._segments[1].base_offset <= self.start_offset:
            segment = self._segments.pop(0)
            due = now_ms + self.config.file_delete_delay_ms
            self._deleted.append(DeletedSegment(due, segment, snapshot=True, start=self._segments[0].base_offset))

    def maintain(self, now_ms: int) -> None:
        """Roll by age and delete by retention; `remove_deleted` removes the files."""
        active = self._segments[-1]
        if active.size and now_ms - active.created_ms > self.config.roll_ms:
            self.roll(now_ms)
        if "delete" in self.config.cleanup_policy:
            self._retain(now_ms)
        self._snapshots.settle(self.active.size)

    @property
    def has_deleted(self) -> bool:
        return bool(self._deleted) or self._undated

    def remove_deleted(self, now_ms: int) -> None:
        """Rename files of deleted segments, remove due ones, then call `date`.

        Waits for the disk. The new names prevent their return after a crash.
        """
        self._deleted.remove(now_ms)
        if not self.closed:
            self.date(now_ms)

    def date(self, now_ms: int) -> None:
        self._undated = False
        deleted_segments.date(tuple(self._segments[:-1]), self.config, now_ms)

    def _retain(self, now_ms: int) -> None:
        count = expendable(self._segments, self.config, now_ms)
        self._undated = count < len(self._segments) - 1 and not self._segments[count].dated
        if count == len(self._segments):
            self.roll(now_ms)
        # Unflushed segments stay until their flush is done.
        settled_offset = self._settled_offset
        while count and self._segments[0].next_offset <= settled_offset:
            self.advance_start(self._segments[1].base_offset, now_ms)
            count -= 1

    # Compaction (see `cleaner`)

    def closed_segments(self) -> tuple[Segment, ...]:
        waiting = {segment for segment, _ in self._rolled}
        closed, settled_offset = [], self._settled_offset
        for segment in self._segments[:-1]:
            if segment in waiting or segment.next_offset > settled_offset:
                break
            closed.append(segment)
        return tuple(closed)

    def stable_segments(self) -> tuple[Segment, ...]:
        unstable = self.first_unstable_offset
        closed = self.closed_segments()
        return closed if unstable is None else tuple(segment for segment in closed if segment.next_offset <= unstable)

    def swap_in(self, old: Sequence[Segment], new: Segment, now_ms: int) -> bool:
        """Replace consecutive segments by `new`. False if they were deleted."""
        if self.closed or old[0] not in self._segments:
            return False
        at = self._segments.index(old[0])
        if self._segments[at : at + len(old)] != list(old) or old[-1] is self._segments[-1]:
            return False
        self._segments[at : at + len(old)] = [new]
        due = now_ms + self.config.file_delete_delay_ms
        for segment in old:
            self._deleted.append(DeletedSegment(due, segment, snapshot=segment is not old[0]))
        return True

    def batch_start(self, offset: int) -> int:
        return truncation.batch_start(self._segments, offset)

    def cut(self, offset: int, now_ms: int) -> ProducerState:
        """Truncate from the batch with `offset`, in any thread; append only after success. Returns the producers then."""
        offset = self.batch_start(offset)
        self.flushed_offset = min(self.flushed_offset, offset)
        with self.kept.guard:
            self.kept.truncations += 1
        try:
            truncation.cut(self._files, self.directory, self._segments, offset)
        finally:  # a flush before the retry would write producers at the end of a segment that is gone
            self._rolled = [entry for entry in self._rolled if entry[0] in self._segments[:-1]]
        self.epochs.truncate(offset)
        self._files.replace(f"{self.directory}/{EPOCHS}", self.epochs.text().encode())
        self._snapshots.truncated(offset, self.active.size)
        return replayed(self._files, self.directory, self._segments, now_ms)

    def begin_at(self, offset: int, now_ms: int) -> ProducerState:
        """Remove all records, as `cut`; the log then begins at `offset`. After an OSError only a retry is safe."""
        with self.kept.guard:
            self.kept.truncations += 1
            remove_records(self._files, self.directory, offset)
        fresh = Segment(self._files, self.directory, offset, now_ms)
        for segment in self._segments:
            segment.close()
        self._deleted.close()
        self._segments, self._rolled, self._undated, self._has_aborted = [fresh], [], False, False
        self._deleted = DeletedSegments(self._files, self.directory, self.kept, offset)
        self._snapshots, self.epochs, self._new_epoch = SnapshotSchedule(0, ()), LeaderEpochs(), False
        self.start_offset = self.flushed_offset = offset
        return ProducerState()

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
