"""Look-up of the bytes for a reader.

Here: positions and aborted transactions.
Not here: bounds of the log (`partition_log`), reading the bytes (`file_slice`).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from busway_bus.log.aborted import AbortedTransaction, Overlaps
from busway_bus.log.file_slice import FileSlice
from busway_bus.log.segment import Segment
from busway_protocol.records.batch import CorruptBatch


class Extent(NamedTuple):
    """Whole batches of a segment: bytes `position` to below `end`."""

    segment: Segment
    position: int
    end: int


def segment_at(segments: Sequence[Segment], offset: int) -> int:
    low, high = 0, len(segments)
    while high - low > 1:
        middle = (low + high) // 2
        if segments[middle].base_offset <= offset:
            low = middle
        else:
            high = middle
    return low


def extent(segments: Sequence[Segment], offset: int, up_to: int, *, wait: bool) -> Extent | None:
    """Locate the batches from `offset` to below `up_to` in one segment.

    Raises:
        CorruptBatch: a header is damaged.
        ColdPages: only without `wait`.
    """
    at = segment_at(segments, offset)
    while True:
        segment = segments[at]
        position = segment.position_of(offset, wait=wait)
        if position >= segment.size and offset < segment.next_offset:
            raise CorruptBatch(f"offset {offset} cannot be found in {segment.path('.log')}")
        if position < segment.size or at + 1 == len(segments):
            break
        at += 1
    end = segment.size if segment.next_offset <= up_to else segment.position_of(up_to, wait=wait)
    return Extent(segment, position, end) if position < end else None


def cut(batches: Extent, max_bytes: int, *, min_one: bool, wait: bool) -> FileSlice | None:
    """Take at most `max_bytes` of an extent. Raises as `extent`.

    The last batch may be incomplete, as in Kafka; clients ignore it. The first is complete, even if larger; without
    `min_one` the result is None then (KIP-74).
    """
    segment, position, end = batches
    size = end - position
    if size > max_bytes:
        first = segment.batch_size(position, wait=wait)
        if first > max_bytes and not min_one:
            return None
        size = max(first, max_bytes)
    return segment.slice(position, size)


def committed(
    segments: Sequence[Segment], extent: Extent, batches: FileSlice, offset: int, up_to: int, *, wait: bool
) -> tuple[FileSlice, Sequence[tuple[int, int]]]:
    """Find the aborted transactions of `batches`, the beginning of `extent`.

    Returns their (producer id, first offset), and `batches`, shortened if there are too many. Raises as `extent`, also
    for an index.
    """
    upper = min(up_to, extent.segment.offset_near(extent.position + len(batches), wait=wait))
    overlaps = Overlaps(offset, upper)
    for segment in segments[segment_at(segments, offset) :]:
        if segment.transactions.count:
            segment.transactions.collect(overlaps, wait=wait)
            if overlaps.complete:
                break
    if overlaps.upper < upper:
        end = extent.segment.position_of(overlaps.upper, wait=wait)
        batches = extent.segment.slice(extent.position, min(len(batches), end - extent.position))
    return batches, overlaps.transactions


def aborted(segments: Sequence[Segment], first: Segment, upper: int) -> Iterator[AbortedTransaction]:
    """Iterate over transactions aborted in `first` or later, started before `upper`.

    Empty if `first` is not in `segments`. CorruptBatch: an index is damaged.
    """
    for segment in segments[segments.index(first) :] if first in segments else ():
        for entry in segment.transactions.all():
            if entry.first_offset < upper:
                yield entry
            if entry.last_stable_offset >= upper:
                return
