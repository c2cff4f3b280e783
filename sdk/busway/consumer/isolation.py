"""Conversion of fetched bytes into visible records.

Here: splitting batches, checksums, dropping control records and, at read_committed, aborted transactions (KIP-98).
"""

import heapq
from collections.abc import Iterable

from busway.consumer.subscription import FetchPosition
from busway.errors import DamagedData
from busway.types import Record
from busway_protocol.errors import ProtocolError
from busway_protocol.messages.fetch import AbortedTransaction
from busway_protocol.records.batch import BatchHeader, iter_batches, verify_crc
from busway_protocol.records.record import Record as StoredRecord
from busway_protocol.records.record import decode_records

ABORT = 0


def take_aborted(assigned: FetchPosition, transactions: Iterable[AbortedTransaction]) -> None:
    for aborted in transactions:
        heapq.heappush(assigned.aborted, (aborted.first_offset, aborted.producer_id))


def take_chunk(assigned: FetchPosition, data: memoryview) -> int:
    """Buffer fetched batches and return the next offset to fetch.

    Raise `DamagedData` if the first batch is damaged; a later one starts the next fetch.
    """
    begin = following = assigned.fetch_position
    try:
        for header, batch in iter_batches(data):
            assigned.chunks.append(batch)
            following, assigned.fetched_epoch = header.next_offset, header.partition_leader_epoch
    except ProtocolError as problem:
        if following == begin:
            raise DamagedData(f"{_name(assigned)} at offset {following}: {problem}") from None
    return following


def decode_next(assigned: FetchPosition, *, check_crcs: bool, read_committed: bool) -> None:
    """Decode the next buffered batch; raise `DamagedData`. The batch stays next, and `seek` skips it."""
    batch = assigned.chunks.popleft()
    ((header, _),) = iter_batches(batch)
    records: list[StoredRecord] = []
    try:
        if check_crcs:
            verify_crc(batch, header)
        if visible(assigned, header, batch, read_committed=read_committed):
            records = decode_records(batch)
    except ProtocolError as problem:
        assigned.chunks.appendleft(batch)
        raise DamagedData(
            f"{_name(assigned)} at offset {header.base_offset}: {problem}; seek to {header.next_offset} to go past it"
        ) from None
    topic, partition_index = assigned.partition
    position = assigned.position or 0
    epoch = header.partition_leader_epoch
    assigned.records.extend(
        Record(topic, partition_index, offset, timestamp, timestamp_type, key, value, headers, epoch)
        for offset, timestamp, timestamp_type, key, value, headers in records
        if offset >= position
    )
    if not assigned.records:
        assigned.position = max(position, header.next_offset)


def visible(assigned: FetchPosition, header: BatchHeader, batch: memoryview, *, read_committed: bool) -> bool:
    """Return whether a reader may see the batch; call it in order for every batch.

    It tracks aborted transactions. Every fetch that overlaps one names its producer and first offset; its marker ends
    it. A repeated name must be processed before that marker, or it would hide the producer's next transaction.
    """
    if header.producer_id >= 0:
        _begin_aborted(assigned, header.last_offset)
    if header.is_control:
        _control(assigned, header, batch)
        return False
    return not (read_committed and header.is_transactional and header.producer_id in assigned.aborted_producers)


def _begin_aborted(assigned: FetchPosition, last_offset: int) -> None:
    while assigned.aborted and assigned.aborted[0][0] <= last_offset:
        assigned.aborted_producers.add(heapq.heappop(assigned.aborted)[1])


def _control(assigned: FetchPosition, header: BatchHeader, batch: memoryview) -> None:
    for record in decode_records(batch):
        if record.key is not None and int.from_bytes(record.key[2:4], "big") == ABORT:
            assigned.aborted_producers.discard(header.producer_id)


def _name(assigned: FetchPosition) -> str:
    return f"{assigned.partition.topic}-{assigned.partition.partition}"
