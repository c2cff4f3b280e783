"""Cleaning of one compacted log, by the rules of `compaction`.

Here: writing and swapping in cleaned segments, in small steps.
Not here: the choice of the log, threads and pauses (`replication.log_cleaner`).

A cleaned segment is written as `.cleaned`, synced, and renamed to `.swap`. It gets its final name after the replaced
segments are renamed to `.deleted`. A start removes `.cleaned` files and finishes `.swap` files, as in Kafka.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from busway_bus.kernel.limits import CLEANED_KEYS_MAX
from busway_bus.log.aborted import AbortedTransaction
from busway_bus.log.cleaned_transactions import CleanedTransactions
from busway_bus.log.compaction import KeyOffsets, Plan, cleaned_batch, due, groups, plan
from busway_bus.log.file_names import SWAP
from busway_bus.log.partition_log import PartitionLog
from busway_bus.log.producer_state import LastOfProducer
from busway_bus.log.segment import Segment
from busway_bus.log.segment_indexes import check_offsets
from busway_protocol.records.batch import BatchHeader, CorruptBatch, read_header, verify_crc
from busway_protocol.records.compression import inflated_max
from busway_protocol.records.record import Record, decode_records

_PRODUCERS_PER_STEP: Final = 100


def cleanable(log: PartitionLog, *, cleaned: int, now_ms: int) -> Plan | None:
    """Plan the due cleaning of a log, if any. CorruptBatch: its first dirty batch is damaged."""
    segments = log.stable_segments()
    possible = plan(segments, cleaned=cleaned if cleaned <= log.end_offset else 0, config=log.config, now_ms=now_ms)
    if possible is None:
        return None
    oldest_ms = -1
    if now_ms >= log.config.max_compaction_lag_ms:
        oldest = next(segment for segment in segments if segment.next_offset > possible.first_dirty)
        oldest_ms = next((header.max_timestamp for header, _ in oldest.headers()), -1)
    return possible if due(possible, log.config, oldest_ms=oldest_ms, now_ms=now_ms) else None


class Cleaner:
    """One cleaning of one log.

    Call `map_keys`, then for each of `groups`: `write`, `prepare`, `put_in_place`, `settle`. `put_in_place` runs in the
    appending thread, the others in another. `map_keys` and `write` raise ProtocolError for damage.
    """

    def __init__(self, log: PartitionLog, chosen: Plan, *, now_ms: int, keys_max: int = CLEANED_KEYS_MAX) -> None:
        self._log = log
        self._plan = chosen
        self._now_ms = now_ms
        self._config = log.config
        self._segments = [segment for segment in log.stable_segments() if segment.base_offset < chosen.end]
        self._producers: dict[int, LastOfProducer] = {}
        self._transactions = CleanedTransactions()
        self._offsets = KeyOffsets(chosen.first_dirty, keys_max)
        self._truncations = log.kept.truncations
        self._new: Segment | None = None
        self._placed: Segment | None = None

    @property
    def end(self) -> int:
        """End of the clean part after all groups."""
        return self._offsets.end

    @property
    def unsettled(self) -> bool:
        """Whether a swapped-in segment has `.swap` names."""
        return self._placed is not None

    def map_keys(self) -> Iterator[None]:
        """Map each dirty key to its last offset, one batch a step.

        Collects each producer's last batch, which must be kept.
        """
        for count, (producer_id, last) in enumerate(self._log.producers.last_records()):
            self._producers[producer_id] = last
            if count % _PRODUCERS_PER_STEP == 0:
                yield
        transactions = CleanedTransactions()
        for segment in self._segments:
            segment.check()
            if segment.next_offset <= self._plan.first_dirty:
                continue
            transactions.add(self._log.aborted(segment, segment.next_offset))
            for header, position in segment.headers():
                if header.last_offset >= self._plan.first_dirty:
                    _, records = self._read(segment, header, position)
                    over, _ = _passed(transactions, header, records)
                    if not self._offsets.add(header, records, rolled_back=over):
                        return
                yield

    def groups(self) -> list[Sequence[Segment]]:
        """Return the segments to rewrite together, up to `end`."""
        chosen = [segment for segment in self._segments if segment.base_offset < self._offsets.end]
        return [chosen[first:behind] for first, behind in groups(chosen, self._config)]

    def write(self, group: Sequence[Segment]) -> Iterator[None]:
        new = self._new = self._log.kept.new_segment(group[0].base_offset, group[-1].created_ms)
        changed = len(group) > 1
        for segment in group:
            self._transactions.add(self._log.aborted(segment, segment.next_offset))
            for header, position in segment.headers():
                batch, records = self._read(segment, header, position)
                over, ended = _passed(self._transactions, header, records)
                last_of_group = header.next_offset == group[-1].next_offset
                cleaned = cleaned_batch(
                    batch,
                    header,
                    records,
                    self._offsets,
                    now_ms=self._now_ms,
                    delete_retention_ms=self._config.delete_retention_ms,
                    keep_empty=last_of_group or self._is_last_of_producer(header),
                    over=over,
                )
                changed |= cleaned is not batch
                if cleaned is not None:
                    written = read_header(cleaned)
                    check_offsets(written, new.base_offset, new.next_offset)
                    if ended is not None:
                        new.append_abort([bytes(cleaned)], written, self._config, ended)
                    else:
                        new.append([bytes(cleaned)], written, self._config)
                yield
        if new.next_offset != group[-1].next_offset:
            raise CorruptBatch(f"{group[-1].path('.log')} ends before {new.next_offset}, not {group[-1].next_offset}")
        if not changed:
            self.abandon()

    def prepare(self) -> bool:
        """Sync the new segment and rename it to `.swap`. False without one."""
        if self._new is None:
            return False
        self._new.finish()
        self._new.sync()
        self._new.sync_indexes()
        return self._log.kept.rename(self._new, SWAP)

    def put_in_place(self, group: Sequence[Segment], now_ms: int) -> bool:
        """Swap the new segment in. False if the old ones were deleted, or the log truncated."""
        assert self._new is not None
        if (
            self._log.busy
            or self._truncations != self._log.kept.truncations
            or not self._log.swap_in(group, self._new, now_ms)
        ):
            return False
        self._placed, self._new = self._new, None
        return True

    def settle(self, now_ms: int) -> None:
        """Rename old files to `.deleted`, new ones to their final names."""
        assert self._placed is not None
        self._log.remove_deleted(now_ms)
        self._log.kept.rename(self._placed, "")
        self._placed = None

    def abandon(self) -> None:
        if self._new is not None:
            self._new.close()
            if not self._log.closed:
                self._new.delete()
            self._new = None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset >= 0:
            return last.last_offset == header.last_offset
        return header.is_control and header.producer_epoch == last.epoch

    def _read(self, segment: Segment, header: BatchHeader, position: int) -> tuple[bytes, list[Record]]:
        batch = segment.read(position, header.size_bytes)
        verify_crc(batch, header)
        limit = inflated_max(len(batch), self._config.max_message_bytes)
        return batch, decode_records(batch, max_decompressed=limit)


def _passed(
    transactions: CleanedTransactions, header: BatchHeader, records: Sequence[Record]
) -> tuple[bool, AbortedTransaction | None]:
    return transactions.control(header, records) if header.is_control else (transactions.records(header), None)
