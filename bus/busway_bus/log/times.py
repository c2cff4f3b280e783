"""Look-up of records by timestamp.

Here: look-ups over a log's segments (KIP-79, KIP-734).
Not here: the time index (`index`), the segments (`partition_log`). They run in steps outside the event loop: a batch
may have a million records.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import Final

from busway_bus.log.log_config import LogConfig
from busway_bus.log.segment import Segment
from busway_protocol.records.batch import HEADER_BYTES, BatchHeader
from busway_protocol.records.compression import inflate, inflated_max
from busway_protocol.records.walk import record_times

OffsetAndTimestamp = tuple[int, int, int]
"""Offset, timestamp and leader epoch of a record."""
Search = Generator[None, None, OffsetAndTimestamp | None]
_STEP: Final = 500
"""Headers or records of one step, a few hundred microseconds."""


def first_at(
    segments: Sequence[Segment], timestamp_ms: int, *, start_offset: int, up_to: int, config: LogConfig
) -> Search:
    """Find the first record from `timestamp_ms`, or raise ProtocolError for damage."""
    for segment in segments:
        if segment.max_timestamp < timestamp_ms:
            continue
        for number, (header, position) in enumerate(segment.headers(segment.position_before(timestamp_ms))):
            if number % _STEP == 0:
                yield
            if header.base_offset >= up_to:
                return None
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            for offset, timestamp in _times(segment, header, position, config):
                if offset % _STEP == 0:
                    yield
                if offset >= up_to:
                    return None
                if timestamp >= timestamp_ms and offset >= start_offset:
                    return offset, timestamp, header.partition_leader_epoch
    return None


def first_of_largest(segments: Sequence[Segment], *, start_offset: int, up_to: int, config: LogConfig) -> Search:
    """Find the first record with the largest timestamp (KIP-734), as `first_at`."""
    largest = -1
    for segment in segments:
        if segment.max_timestamp <= largest or segment.base_offset >= up_to:
            continue
        if start_offset <= segment.base_offset and segment.next_offset <= up_to:
            largest = segment.max_timestamp
            continue
        for number, (header, position) in enumerate(segment.headers()):
            if number % _STEP == 0:
                yield
            if header.base_offset >= up_to:
                break
            if header.max_timestamp <= largest or header.last_offset < start_offset:
                continue
            if start_offset <= header.base_offset and header.last_offset < up_to:
                largest = header.max_timestamp
                continue
            for offset, timestamp in _times(segment, header, position, config):
                if offset % _STEP == 0:
                    yield
                if start_offset <= offset < up_to:
                    largest = max(largest, timestamp)
    if largest < 0:
        return None
    return (yield from first_at(segments, largest, start_offset=start_offset, up_to=up_to, config=config))


def _times(segment: Segment, header: BatchHeader, position: int, config: LogConfig) -> Iterator[tuple[int, int]]:
    batch = segment.read(position, header.size_bytes)
    limit = inflated_max(len(batch), config.max_message_bytes)
    data = inflate(header.compression, memoryview(batch)[HEADER_BYTES:], limit)
    return record_times(header, data)
