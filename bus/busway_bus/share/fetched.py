"""The batches read from a log for one member, by their headers.

Here: reading headers up to a bound, finding aborted batches.
Not here: which records a member gets (`acquisition`). The bytes stay in their file until sent.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from busway_bus.log.file_slice import FileSlice
from busway_bus.log.partition_log import PartitionLog
from busway_bus.log.reading import Extent
from busway_bus.share.acquisition import Span
from busway_bus.share.in_flight import Acquired
from busway_protocol.records.batch import BatchHeader


class Fetched(NamedTuple):
    """Adjacent whole batches.

    Attributes:
        headers: with their positions in the file.
        aborted: offset ranges of aborted batches.
    """

    extent: Extent
    headers: Sequence[tuple[BatchHeader, int]]
    aborted: Sequence[Span]

    @property
    def spans(self) -> list[Span]:
        return [(header.base_offset, header.last_offset) for header, _ in self.headers]

    def of(self, acquired: Sequence[Acquired]) -> FileSlice:
        first, last = acquired[0].first, acquired[-1].last
        inside = [entry for entry in self.headers if entry[0].last_offset >= first and entry[0].base_offset <= last]
        position, end = inside[0][1], inside[-1][1] + inside[-1][0].size_bytes
        return self.extent.segment.slice(position, end - position)


def read(
    log: PartitionLog,
    offset: int,
    *,
    wanted_up_to: int,
    max_bytes: int,
    up_to: int,
    committed: bool,
    min_one: bool,
    wait: bool,
) -> Fetched | None:
    """Read batches from `offset` to the one with `wanted_up_to`.

    Args:
        up_to: the end of the readable offsets, exclusive.
        committed: find aborted batches.
        min_one: the first batch may exceed `max_bytes`.

    Raises:
        KafkaError: OFFSET_OUT_OF_RANGE.
        CorruptBatch: a header is damaged.
        ColdPages: only without `wait`.
    """
    extent = log.extent(offset, up_to=up_to, wait=wait)
    if extent is None:
        return None
    headers: list[tuple[BatchHeader, int]] = []
    for header, position in extent.segment.headers(extent.position, wait=wait):
        end = position + header.size_bytes
        if end > extent.end or (end - extent.position > max_bytes and (headers or not min_one)):
            break
        headers.append((header, position))
        if header.last_offset >= wanted_up_to:
            break
    if not headers:
        return None
    aborted: Sequence[Span] = ()
    if committed:
        size = headers[-1][1] + headers[-1][0].size_bytes - extent.position
        batches, transactions = log.committed_slice(offset, size, up_to=up_to, wait=wait)
        known_to = extent.position + (0 if batches is None else len(batches))
        headers = [entry for entry in headers if entry[1] + entry[0].size_bytes <= known_to]
        aborted = rolled_back((header for header, _ in headers), transactions)
    return Fetched(extent, headers, aborted) if headers else None


def rolled_back(headers: Iterable[BatchHeader], transactions: Iterable[tuple[int, int]]) -> list[Span]:
    """Return the batches of aborted transactions (producer id, first offset)."""
    begins = deque(sorted(transactions, key=lambda entry: entry[1]))
    under_way: set[int] = set()
    spans: list[Span] = []
    for header in headers:
        if header.producer_id < 0:
            continue
        while begins and begins[0][1] <= header.last_offset:
            under_way.add(begins.popleft()[0])
        if header.is_control:
            under_way.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in under_way:
            spans.append((header.base_offset, header.last_offset))
    return spans
