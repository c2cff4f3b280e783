"""The log of one partition: ordered segments, start and end, and what the batches in it say of producers and epochs.

What lives here: append, read, look-ups, roll, truncation, deletion, recovery. What does not: waiting for the disk (`flusher`),
clocks (times come in), and who may write (`replication`). The record batches are never opened on the way in or out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from busway_bus.kernel.files import Files
from busway_bus.log.epochs import LeaderEpochs
from busway_bus.log.log_config import LogConfig
from busway_bus.log.producer_state import ProducerState
from busway_bus.log.segment import Segment, file_name
from busway_bus.log.validate import check_batch
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    assign_offset,
    iter_batches,
    read_header,
    set_log_append_time,
)
from busway_protocol.records.record import Record, decode_records
from busway_protocol.types import Buffer

EPOCHS_FILE: Final = "leader-epoch-checkpoint"


class CorruptLog(RuntimeError):
    """Data that was flushed is damaged; the text names the file and the offset. Nothing is cut by itself then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendInfo:
    """Where a batch was put. `log_append_time_ms` is -1 for CreateTime topics."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class FlushPoint:
    """What a flush that starts now will have put on disk when it is done."""

    segments: tuple[Segment, ...]
    end_offset: int


class PartitionLog:
    """One partition's records on disk.

    Attributes:
        start_offset: first offset that may be read.
        flushed_offset: everything below it is on disk.
    """

    def __init__(
        self, files: Files, directory: str, config: LogConfig, *, now_ms: int, flushed: int = 0, clean: bool = False
    ) -> None:
        """Open the log in `directory`, an empty one where nothing is there.

        Args:
            flushed: recovery point from the checkpoint: what is damaged below it is not a torn tail.
            clean: whether the last process closed it in order, so that the files are trusted.

        Raises:
            CorruptLog: data below the recovery point is damaged.
        """
        self._files = files
        self.directory = directory
        self.config = config
        self.producers = ProducerState()
        text = files.read_bytes(f"{directory}/{EPOCHS_FILE}")
        self.epochs = LeaderEpochs.from_text(text.decode(errors="replace") if text else "")
        self._segments: list[Segment] = []
        self._deleted: list[tuple[int, Segment]] = []
        self._load(now_ms, flushed, clean)
        self.start_offset = self._segments[0].base_offset
        self.flushed_offset = self.end_offset

    # Opening

    def _load(self, now_ms: int, flushed: int, clean: bool) -> None:
        names = self._files.list(self.directory)
        bases = sorted(int(name[:-4]) for name in names if name.endswith(".log") and name[:-4].isdigit())
        for base in bases or [0]:
            segment = Segment(self._files, self.directory, base, now_ms)
            self._segments.append(segment)
            if not (clean and segment.load()):
                self._recover(segment, flushed, newest=base == bases[-1] if bases else True)
        end = self.end_offset
        self.epochs.truncate(end + 1)
        snapshot = self._files.read_bytes(f"{self.directory}/{file_name(end, '.snapshot')}") if clean else None
        restored = ProducerState.from_snapshot(snapshot) if snapshot else None
        if restored is not None:
            self.producers = restored
            return
        for segment in self._segments:
            for header, _ in segment.headers():
                self.producers.apply(header)
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)

    def _recover(self, segment: Segment, flushed: int, *, newest: bool) -> None:
        """Read a segment through and put what stays on disk; only the newest can have a torn tail, since a roll syncs."""
        intact, problem = segment.recover(self.config)
        if problem is None and newest and segment.next_offset < flushed:
            problem = CorruptBatch("the file ends too early")
        if problem is not None:
            if not newest or segment.next_offset < flushed:
                known = f"was flushed up to {flushed}" if newest else "newer segments follow it"
                raise CorruptLog(
                    f"{segment.path('.log')} is damaged behind offset {segment.next_offset}, but {known}: "
                    f"{problem}. Restore the file from a copy, or remove the partition's directory to accept the loss"
                )
            segment.cut(intact)
        # What a killed process left in the page cache counts as flushed from here on, so it has to be.
        segment.sync()

    # What is there

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._segments[-1].next_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def active(self) -> Segment:
        """The segment that is written to."""
        return self._segments[-1]

    # Writing

    def append(self, records: Buffer, *, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Write the one batch that a client sent.

        Raises:
            KafkaError: the batch is refused (see `validate` and `producer_state`); nothing was written.
            OSError: the disk failed.
        """
        header = check_batch(records, self.config, now_ms)
        seen = self.producers.check(header) if header.producer_id >= 0 else None
        if seen is not None:
            return AppendInfo(
                first_offset=seen.first_offset,
                last_offset=seen.last_offset,
                log_append_time_ms=-1,
                log_start_offset=self.start_offset,
                duplicate=True,
            )
        return self._write(records, header, leader_epoch, now_ms)

    def append_own(self, batch: Buffer, *, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Write a batch that this broker built itself: no limits, no sequence numbers."""
        return self._write(batch, read_header(batch), leader_epoch, now_ms)

    def _write(self, records: Buffer, header: BatchHeader, leader_epoch: int, now_ms: int) -> AppendInfo:
        first = self.end_offset
        last = first + header.last_offset_delta
        append_time = -1
        pieces: list[bytes | bytearray | memoryview]
        if self.config.message_timestamp_type == "LogAppendTime":
            append_time = now_ms
            whole = bytearray(records)
            assign_offset(whole, base_offset=first, leader_epoch=leader_epoch)
            set_log_append_time(whole, now_ms)
            pieces = [whole]
            header = read_header(whole)
        else:
            head = bytearray(memoryview(records)[:HEADER_BYTES])
            assign_offset(head, base_offset=first, leader_epoch=leader_epoch)
            pieces = [head, memoryview(records)[HEADER_BYTES:]]
            header = header._replace(base_offset=first, partition_leader_epoch=leader_epoch)
        if self._segments[-1].full(header.size_bytes, last, self.config):
            self.roll(now_ms)
        if leader_epoch > self.epochs.latest and self.epochs.assign(leader_epoch, first):
            self._files.replace(f"{self.directory}/{EPOCHS_FILE}", self.epochs.text().encode())
        self._segments[-1].append(pieces, header, self.config)
        self.producers.apply(header)
        return AppendInfo(
            first_offset=first, last_offset=last, log_append_time_ms=append_time, log_start_offset=self.start_offset
        )

    def roll(self, now_ms: int) -> None:
        """Start a new segment; the old one is synced first, so that only the newest can have a torn tail."""
        old = self._segments[-1]
        if old.size == 0:
            return
        old.finish()
        old.sync()
        self._segments.append(Segment(self._files, self.directory, old.next_offset, now_ms))
        self._files.replace(f"{self.directory}/{file_name(old.next_offset, '.snapshot')}", self.producers.snapshot())

    # Flushing

    def flush_point(self) -> FlushPoint:
        """What is to be synced for everything appended so far; only the newest segment can be dirty."""
        return FlushPoint((self._segments[-1],), self.end_offset)

    def flushed(self, point: FlushPoint) -> None:
        """Note that `point` is on disk."""
        self.flushed_offset = max(self.flushed_offset, point.end_offset)

    # Reading

    def read(self, offset: int, max_bytes: int, *, up_to: int, min_one: bool = True) -> bytes:
        """Whole batches from the one that holds `offset` on, below offset `up_to`.

        Args:
            max_bytes: limit; with `min_one` the first batch comes even when it is larger (KIP-74).

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE.
        """
        if offset < self.start_offset or offset > self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {self.start_offset} to {self.end_offset}",
            )
        if offset >= up_to:
            return b""
        at = self._at(offset)
        while True:
            segment = self._segments[at]
            position = segment.position_of(offset)
            if position < segment.size or at + 1 == len(self._segments):
                break
            at += 1
        return self._batches(segment, position, max_bytes, up_to, min_one)

    @staticmethod
    def _batches(segment: Segment, position: int, max_bytes: int, up_to: int, min_one: bool) -> bytes:
        data = segment.read(position, max(max_bytes, HEADER_BYTES))
        kept, last = 0, -1
        for header, batch in iter_batches(data):
            if header.last_offset >= up_to or kept + len(batch) > max_bytes:
                break
            kept += len(batch)
            last = header.last_offset
        if kept == 0 and min_one and len(data) >= HEADER_BYTES:
            header = read_header(data)
            if header.last_offset < up_to:
                data = segment.read(position, header.size_bytes)
                kept, last = len(data), header.last_offset
        if kept:
            segment.remember(last + 1, position + kept)
        return data if kept == len(data) else data[:kept]

    def _at(self, offset: int) -> int:
        """Number of the segment that holds `offset`."""
        low, high = 0, len(self._segments)
        while high - low > 1:
            middle = (low + high) // 2
            if self._segments[middle].base_offset <= offset:
                low = middle
            else:
                high = middle
        return low

    def batches(self, offset: int = 0) -> Iterator[bytes]:
        """Every batch from `offset` on, whole, for those who load their state from a log."""
        for segment in self._segments[self._at(max(offset, self.start_offset)) :]:
            for header, position in segment.headers():
                if header.last_offset >= offset:
                    yield segment.read(position, header.size_bytes)

    # Looking up

    def offset_for_time(self, timestamp_ms: int, *, up_to: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record at or after `timestamp_ms`, None when there is none."""
        for segment in self._segments:
            if segment.max_timestamp < timestamp_ms:
                continue
            start = segment.offsets.position(segment.times.offset(timestamp_ms))
            for header, position in segment.headers(start):
                if header.base_offset >= up_to:
                    return None
                if header.max_timestamp >= timestamp_ms:
                    for record in self._records(segment, header, position):
                        if record.timestamp >= timestamp_ms and self.start_offset <= record.offset < up_to:
                            return record.offset, record.timestamp, header.partition_leader_epoch
        return None

    def max_timestamp(self) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record with the largest timestamp (KIP-734)."""
        candidates = [segment for segment in self._segments if segment.max_timestamp >= 0]
        if not candidates:
            return None
        largest = max(segment.max_timestamp for segment in candidates)
        return self.offset_for_time(largest, up_to=self.end_offset)

    def _records(self, segment: Segment, header: BatchHeader, position: int) -> list[Record]:
        batch = segment.read(position, header.size_bytes)
        return decode_records(batch, max_decompressed=16 * max(self.config.max_message_bytes, len(batch)))

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
            self._deleted.append((now_ms + self.config.file_delete_delay_ms, self._segments.pop(0)))

    def maintain(self, now_ms: int) -> None:
        """Roll by age, delete by retention, and remove what was deleted long enough ago."""
        active = self._segments[-1]
        if active.size and now_ms - active.created_ms > self.config.segment_ms:
            self.roll(now_ms)
        if "delete" in self.config.cleanup_policy:
            self._retain(now_ms)
        while self._deleted and self._deleted[0][0] <= now_ms:
            self._deleted.pop(0)[1].delete()

    def _retain(self, now_ms: int) -> None:
        config = self.config
        total = self.size_bytes
        while True:
            oldest = self._segments[0]
            newest = max(oldest.max_timestamp, -1)
            expired = 0 <= config.retention_ms < now_ms - newest if newest >= 0 else False
            oversized = 0 <= config.retention_bytes <= total - oldest.size
            if oldest.size == 0 or not (expired or oversized) or oldest.next_offset > self.flushed_offset:
                return
            if len(self._segments) == 1:
                self.roll(now_ms)
            total -= oldest.size
            self.advance_start(self._segments[1].base_offset, now_ms)

    def truncate(self, offset: int) -> None:
        """Cut everything at and behind `offset`, as a follower does that has gone astray."""
        while len(self._segments) > 1 and self._segments[-1].base_offset > offset:
            self._segments.pop().delete()
        self._segments[-1].truncate(offset)
        self.epochs.truncate(offset)
        self._files.replace(f"{self.directory}/{EPOCHS_FILE}", self.epochs.text().encode())
        self.flushed_offset = min(self.flushed_offset, offset)
        self.producers = ProducerState()
        for segment in self._segments:
            for header, _ in segment.headers():
                self.producers.apply(header)

    def close(self, *, clean: bool) -> None:
        """Close the files; a clean close syncs them and leaves the producers' snapshot for the next start."""
        if clean:
            active = self._segments[-1]
            active.finish()
            active.sync()
            path = f"{self.directory}/{file_name(self.end_offset, '.snapshot')}"
            self._files.replace(path, self.producers.snapshot())
        for segment in self._segments:
            segment.close()
        for _, segment in self._deleted:
            segment.delete() if clean else segment.close()
