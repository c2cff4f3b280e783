"""Result of an append, and the stored form of a batch.

Here: setting header fields.
Not here: validation (`validate`, `producer_state`), the segment.
"""

from typing import NamedTuple

from busway_bus.kernel.transactions import EndTransaction
from busway_bus.log.log_config import LogConfig
from busway_bus.log.producer_state import Ended
from busway_protocol.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    assign_offset,
    read_header,
    set_log_append_time,
    verify_crc,
)
from busway_protocol.records.control import TransactionMarker, end_transaction_marker, read_marker
from busway_protocol.types import Buffer


class AppendInfo(NamedTuple):
    """Result of an append.

    Attributes:
        log_append_time_ms: -1 for CreateTime topics.
        size_bytes: of the batch.
        began, ended: whether the batch began a transaction, and the one it ended.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False
    size_bytes: int = 0
    began: bool = False
    ended: Ended | None = None


def stamped(
    records: Buffer, header: BatchHeader, *, first: int, leader_epoch: int, config: LogConfig, now_ms: int
) -> tuple[list[bytes | bytearray | memoryview], BatchHeader]:
    if config.message_timestamp_type == "LogAppendTime":
        whole = bytearray(records)
        assign_offset(whole, base_offset=first, leader_epoch=leader_epoch)
        set_log_append_time(whole, now_ms)
        return [whole], read_header(whole)
    head = bytearray(memoryview(records)[:HEADER_BYTES])
    assign_offset(head, base_offset=first, leader_epoch=leader_epoch)
    final = BatchHeader(first, header.batch_length, leader_epoch, *header[3:])
    return [head, memoryview(records)[HEADER_BYTES:]], final


def marker_batch(marker: EndTransaction, now_ms: int) -> tuple[bytes, TransactionMarker]:
    batch = end_transaction_marker(
        marker.producer_id,
        marker.producer_epoch,
        committed=marker.committed,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp_ms=now_ms,
    )
    return batch, TransactionMarker(marker.committed, marker.coordinator_epoch, now_ms)


def fetched(batch: Buffer, end_offset: int) -> tuple[BatchHeader, TransactionMarker | None]:
    """Check a batch of the leader for a log that ends at `end_offset`; return its header and marker."""
    header = read_header(batch)
    verify_crc(batch, header)
    if header.base_offset < end_offset:
        raise CorruptBatch(f"offset {header.base_offset} was fetched, the log ends at {end_offset}")
    return header, read_marker(batch) if header.is_control and header.producer_id >= 0 else None
