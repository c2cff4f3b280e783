"""Finding records by their time.

What lives here: look-ups over a log's segments (KIP-79, KIP-734), which open the one batch that may hold the record. What does not:
the time index (`index`) and which segments there are (`partition_log`).
"""

from collections.abc import Iterator, Sequence
from typing import Final

from busway_bus.log.segment import Segment
from busway_protocol.records.record import decode_records

_INFLATION_MAX: Final = 16
"""A batch may inflate to so many times max.message.bytes, or its own size where that is larger."""

Found = tuple[int, int, int]
"""Offset, timestamp and leader epoch of a record."""


def first_at(
    segments: Sequence[Segment], timestamp_ms: int, *, start_offset: int, up_to: int, max_message_bytes: int
) -> Found | None:
    """The first record at or after `timestamp_ms` within the offsets, None when there is none.

    Raises:
        ProtocolError: a batch is damaged on disk.
    """
    for segment in segments:
        if segment.max_timestamp < timestamp_ms:
            continue
        for found in _matching(segment, timestamp_ms, max_message_bytes):
            if found[0] >= up_to:
                return None
            if found[0] >= start_offset:
                return found
    return None


def _matching(segment: Segment, timestamp_ms: int, max_message_bytes: int) -> Iterator[Found]:
    start = segment.offsets.position(segment.times.offset(timestamp_ms))
    for header, position in segment.headers(start):
        if header.max_timestamp < timestamp_ms:
            continue
        batch = segment.read(position, header.size_bytes)
        for record in decode_records(batch, max_decompressed=_INFLATION_MAX * max(max_message_bytes, len(batch))):
            if record.timestamp >= timestamp_ms:
                yield record.offset, record.timestamp, header.partition_leader_epoch


def largest(segments: Sequence[Segment]) -> int:
    """The largest timestamp, -1 when there is none."""
    return max(segment.max_timestamp for segment in segments)
