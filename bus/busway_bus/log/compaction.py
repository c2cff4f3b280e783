"""Retention of records in a compacted log (KIP-58, KIP-354, KIP-534).

Here: the range to clean, the map from key to last offset, the rewrite of a batch.
Not here: files and scheduling (`cleaner`). A rewritten batch keeps its base and last offset. The first cleaning writes
the delete horizon of tombstones into their batch: readers at most delete.retention.ms behind see them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from busway_bus.kernel.limits import CLEANED_KEYS_MAX
from busway_bus.log.index import OFFSETS_MAX
from busway_bus.log.log_config import LogConfig
from busway_bus.log.retention import SegmentView
from busway_protocol.records.batch import (
    CODEC_MASK,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    BatchHeader,
    computed_crc,
)
from busway_protocol.records.builder import varint
from busway_protocol.records.compression import compress
from busway_protocol.records.record import Record
from busway_protocol.types import Buffer

_DIGEST_BYTES: Final = 16
_NULL: Final = varint(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A possible cleaning of offsets `first_dirty` to `end`.

    `ratio`: dirty fraction of all bytes up to `end`.
    """

    first_dirty: int
    end: int
    ratio: float


def plan(segments: Sequence[SegmentView], *, cleaned: int, config: LogConfig, now_ms: int) -> Plan | None:
    """Plan a cleaning; None if nothing is dirty.

    Args:
        segments: closed, on disk, without open transactions.
        cleaned: end of the last cleaning.
    """
    if not segments:
        return None
    first_dirty = max(cleaned, segments[0].base_offset)
    end = first_dirty
    clean_bytes = dirty_bytes = 0
    for segment in segments:
        if segment.next_offset <= first_dirty:
            clean_bytes += segment.size
        elif config.min_compaction_lag_ms > 0 and segment.max_timestamp > now_ms - config.min_compaction_lag_ms:
            break
        else:
            dirty_bytes += segment.size
            end = segment.next_offset
    if dirty_bytes == 0:
        return None
    return Plan(first_dirty=first_dirty, end=end, ratio=dirty_bytes / (clean_bytes + dirty_bytes))


def due(chosen: Plan, config: LogConfig, *, oldest_ms: int, now_ms: int) -> bool:
    overdue = 0 <= oldest_ms < now_ms - config.max_compaction_lag_ms
    return overdue or chosen.ratio > config.min_cleanable_dirty_ratio


def groups(segments: Sequence[SegmentView], config: LogConfig) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    start = total = 0
    for at, segment in enumerate(segments):
        too_long = segment.next_offset - segments[start].base_offset > OFFSETS_MAX
        if at > start and (total + segment.size > config.segment_bytes or too_long):
            ranges.append((start, at))
            start, total = at, 0
        total += segment.size
    if segments:
        ranges.append((start, len(segments)))
    return ranges


class KeyOffsets:
    """Last offset of each dirty key, mapped up to `end`."""

    __slots__ = ("_keys_max", "_offsets", "end")

    def __init__(self, first_dirty: int, keys_max: int = CLEANED_KEYS_MAX) -> None:
        self._offsets: dict[bytes, int] = {}
        self._keys_max = keys_max
        self.end = first_dirty

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, header: BatchHeader, records: Sequence[Record], *, rolled_back: bool = False) -> bool:
        """Map a batch's keys; if full, return False with `end` set.

        `end` is the first unmapped record. Aborted records supersede nothing.
        """
        if not (header.is_control or rolled_back):
            for record in records:
                if record.offset < self.end or record.key is None:
                    continue
                key = _digest(record.key)
                if len(self._offsets) >= self._keys_max and key not in self._offsets:
                    self.end = record.offset
                    return False
                self._offsets[key] = record.offset
        self.end = max(self.end, header.next_offset)
        return True

    def superseded(self, record: Record) -> bool:
        """Whether a later record has the key, or it is None."""
        if record.key is None:
            return True
        return self._offsets.get(_digest(record.key), -1) > record.offset


def _digest(key: bytes) -> bytes:
    """Hash keys of 16 bytes or more; shorter keys never collide."""
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


def horizon(header: BatchHeader) -> int | None:
    """Return the delete horizon in ms, None before the first cleaning."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def cleaned_batch(
    batch: Buffer,
    header: BatchHeader,
    records: Sequence[Record],
    offsets: KeyOffsets,
    *,
    now_ms: int,
    delete_retention_ms: int,
    keep_empty: bool,
    over: bool = False,
) -> Buffer | None:
    """Return a batch unchanged, smaller, or None if nothing is left.

    Args:
        over: its records were aborted, or its transaction has none left.
        keep_empty: keep the header, for its producer's sequence or its last offset.
    """
    until = horizon(header)
    expired = until is not None and until <= now_ms
    if header.is_control:
        retained = [] if over and expired else list(records)
    elif over:
        retained = []
    else:
        # An earlier record of the key may remain before a tombstone that is not mapped yet.
        retained = [
            record
            for record in records
            if not offsets.superseded(record)
            and (record.value is not None or not expired or record.offset >= offsets.end)
        ]
    if not retained:
        if not keep_empty:
            return None
        return batch if header.records_count == 0 else _empty(header)
    begins = until is None and (
        over if header.is_control else any(record.value is None for record in retained)
    )  # lagging readers must still see a tombstone or marker until the horizon
    if len(retained) == header.records_count and not begins:
        return batch
    return _rebuilt(header, retained, now_ms + delete_retention_ms if begins else until)


def _empty(header: BatchHeader) -> bytes:
    return _sealed(
        header._replace(
            batch_length=HEADER_BYTES - LENGTH_OVERHEAD,
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
            base_timestamp=header.max_timestamp,
            records_count=0,
        ),
        b"",
    )


def _rebuilt(header: BatchHeader, records: Sequence[Record], until: int | None) -> bytes:
    """Build the batch with `records`. A delete horizon replaces the base timestamp."""
    base_timestamp = records[0].timestamp if until is None else until
    body = bytearray()
    for record in records:
        moment = record.timestamp if record.timestamp_type == 0 else base_timestamp
        encoded_record = bytearray(1)
        encoded_record += varint(moment - base_timestamp)
        encoded_record += varint(record.offset - header.base_offset)
        for field in (record.key, record.value):
            encoded_record += _NULL if field is None else varint(len(field)) + field
        encoded_record += varint(len(record.headers))
        for name, content in record.headers:
            encoded = name.encode()
            encoded_record += varint(len(encoded)) + encoded
            encoded_record += _NULL if content is None else varint(len(content)) + content
        body += varint(len(encoded_record))
        body += encoded_record
    packed = compress(header.compression, body) if header.compression else bytes(body)
    return _sealed(
        header._replace(
            batch_length=HEADER_BYTES - LENGTH_OVERHEAD + len(packed),
            attributes=header.attributes | (DELETE_HORIZON if until is not None else 0),
            base_timestamp=base_timestamp,
            max_timestamp=(
                header.max_timestamp if header.timestamp_type else max(record.timestamp for record in records)
            ),
            records_count=len(records),
        ),
        packed,
    )


def _sealed(header: BatchHeader, body: bytes) -> bytes:
    batch = bytearray(HEADER.pack(*header)) + body
    batch[17:CRC_START] = computed_crc(batch).to_bytes(4, "big")
    return bytes(batch)
