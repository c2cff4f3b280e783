"""Which records of a compacted log stay (KIP-58, KIP-354, KIP-534).

What lives here: the choice of what to clean, the map from key to its last offset, and what becomes of one batch. What does not:
files, and when to do it (`cleaner`). Offsets never change: a batch keeps its base offset and its last offset, also when it
loses records, so that readers go on where they were. A tombstone stays until the delete horizon that the first cleaning
writes into its batch, so that every reader who is at most delete.retention.ms behind sees it.
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
    """A cleaning that would be possible now.

    Attributes:
        first_dirty: everything below it was cleaned before.
        end: everything below it may be cleaned.
        ratio: share of the dirty bytes in what would be read.
    """

    first_dirty: int
    end: int
    ratio: float


def plan(segments: Sequence[SegmentView], *, cleaned: int, config: LogConfig, now_ms: int) -> Plan | None:
    """What could be cleaned, None when there is nothing; `segments` are those that are closed, on disk, and without open transactions.

    Args:
        cleaned: the end of the last cleaning.
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
    """Whether to clean now: enough is dirty, or the first dirty record, of `oldest_ms`, has waited too long."""
    overdue = 0 <= oldest_ms < now_ms - config.max_compaction_lag_ms
    return overdue or chosen.ratio > config.min_cleanable_dirty_ratio


def groups(segments: Sequence[SegmentView], config: LogConfig) -> list[tuple[int, int]]:
    """Ranges (first, behind the last) of segments whose records fit into one segment when they are cleaned."""
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
    """The last offset of each key in the dirty part of a log.

    Attributes:
        end: the map knows every record of the dirty part below it.
    """

    __slots__ = ("_keys_max", "_offsets", "end")

    def __init__(self, first_dirty: int, keys_max: int = CLEANED_KEYS_MAX) -> None:
        self._offsets: dict[bytes, int] = {}
        self._keys_max = keys_max
        self.end = first_dirty

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, header: BatchHeader, records: Sequence[Record], *, rolled_back: bool = False) -> bool:
        """Take in a batch; False when the map is full, and `end` says how far it came.

        What was rolled back supersedes nothing.
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
        """Whether a later record has the same key; one without a key has no place in a compacted log."""
        if record.key is None:
            return True
        return self._offsets.get(_digest(record.key), -1) > record.offset


def _digest(key: bytes) -> bytes:
    """Sixteen bytes stand for a longer key; a shorter one can never be mistaken for them."""
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


def horizon(header: BatchHeader) -> int | None:
    """Until when, in ms, the batch's tombstones are kept; None before the first cleaning (KIP-534)."""
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
    """What stays of a batch: the batch itself where nothing changes, None where nothing is left.

    Args:
        records: what is in the batch.
        over: whether its records were rolled back, or it is the end of a transaction that nothing is left of.
        keep_empty: keep the header of a batch that loses all its records, for its producer's sequence or its last offset.
    """
    until = horizon(header)
    expired = until is not None and until <= now_ms
    if header.is_control:
        retained = [] if over and expired else list(records)
    elif over:
        retained = []
    else:
        # A tombstone that the map does not know yet may still have a value before it.
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
    )  # a reader who is behind sees a tombstone, or the end of a transaction, for so long yet
    if len(retained) == header.records_count and not begins:
        return batch
    return _rebuilt(header, retained, now_ms + delete_retention_ms if begins else until)


def _empty(header: BatchHeader) -> bytes:
    """The header alone."""
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
    """The batch with these records only. A delete horizon takes the place of the base timestamp."""
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
