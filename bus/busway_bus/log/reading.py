"""Which bytes of which segment a reader gets.

What lives here: looking up, by positions. What does not: the segments and the bounds of the log (`partition_log`), and the reading
itself, which a client's socket decides about (`file_slice`). Nothing between the first byte and the last is looked at; which of
their transactions were aborted is in indexes (`aborted`).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from busway_bus.log.aborted import AbortedTransaction, Overlaps
from busway_bus.log.file_slice import FileSlice
from busway_bus.log.segment import Segment
from busway_protocol.records.batch import CorruptBatch


class Extent(NamedTuple):
    """Whole batches that lie one behind the other in a segment's file, from byte `position` to before byte `end`."""

    segment: Segment
    position: int
    end: int


def segment_at(segments: Sequence[Segment], offset: int) -> int:
    """Number of the segment that holds `offset`."""
    low, high = 0, len(segments)
    while high - low > 1:
        middle = (low + high) // 2
        if segments[middle].base_offset <= offset:
            low = middle
        else:
            high = middle
    return low


def extent(segments: Sequence[Segment], offset: int, up_to: int, *, wait: bool) -> Extent | None:
    """Where the batches lie from the one that holds `offset` on, below offset `up_to`, in one segment; None where there are none.

    Raises:
        CorruptBatch: a header is damaged on disk.
        ColdPages: without `wait`, the disk would have to be waited for.
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
    """At most `max_bytes` of an extent.

    The last batch may be cut off, as in Kafka, which no client minds; the first one never is: it comes even when it is larger, or
    without `min_one` not at all (KIP-74).

    Raises:
        CorruptBatch: the first header is damaged on disk.
        ColdPages: without `wait`, the disk would have to be waited for.
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
    """What a reader of committed records gets of `batches`, the beginning of `extent` from `offset` on: fewer of them where too many
    transactions in them were aborted; with (producer id, first offset) of those.

    Raises:
        CorruptBatch: an index is damaged on disk.
        ColdPages: without `wait`, the disk would have to be waited for.
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
    """The aborted transactions with their markers in `first` or behind it, of those that begin before `upper`; none where `first` is
    no segment any more.

    Raises:
        CorruptBatch: an index is damaged on disk.
    """
    for segment in segments[segments.index(first) :] if first in segments else ():
        for entry in segment.transactions.all():
            if entry.first_offset < upper:
                yield entry
            if entry.last_stable_offset >= upper:
                return
