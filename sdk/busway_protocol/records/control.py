"""Control batches, which brokers write between clients' records and consumers skip.

Not here: their effects (`busway_bus.log.producer_state`). A control batch (KIP-98) has one record. Its key is a version
and a type, 2 bytes each; a marker's value is a version in 2 bytes and the coordinator epoch in 4.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from busway_protocol.records.batch import CorruptBatch, read_header
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import decode_records
from busway_protocol.types import Buffer

_KEY: Final = struct.Struct(">hh")
_MARKER: Final = struct.Struct(">hi")
_VERSION: Final = 0


class ControlType(IntEnum):
    """Types of control records; only metadata logs have others than the first two."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class TransactionMarker(NamedTuple):
    """End of a transaction in a partition; the producer is in the batch header."""

    committed: bool
    coordinator_epoch: int
    timestamp: int


def end_transaction_marker(
    producer_id: int, producer_epoch: int, *, committed: bool, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True)
    kind = ControlType.COMMIT if committed else ControlType.ABORT
    builder.append(timestamp_ms, _KEY.pack(_VERSION, kind), _MARKER.pack(_VERSION, coordinator_epoch))
    return builder.build()


def control_type(key: bytes | None) -> int:
    """Return a control record's type; numbers outside `ControlType` are of later versions."""
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch("a control record has no type")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"the key of a control record has version {version}")
    return int(kind)


def read_marker(batch: Buffer) -> TransactionMarker | None:
    """Return a control batch's marker; None for other control records, or without records after compaction."""
    if read_header(batch).records_count == 0:
        return None
    record = decode_records(batch)[0]
    kind = control_type(record.key)
    if kind not in {ControlType.ABORT, ControlType.COMMIT}:
        return None
    if record.value is None or len(record.value) < _MARKER.size:
        raise CorruptBatch("the marker of a transaction has no coordinator epoch")
    version, coordinator_epoch = _MARKER.unpack_from(record.value)
    if version < 0:
        raise CorruptBatch(f"the marker of a transaction has version {version}")
    return TransactionMarker(kind == ControlType.COMMIT, coordinator_epoch, record.timestamp)
