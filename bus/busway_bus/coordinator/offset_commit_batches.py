"""Commits of very many offsets in one batch, built in steps.

Here: the batch and its bound.
Not here: writing (`runtime`), permission (`groups.shard`).
"""

from collections.abc import Generator
from typing import Final

from busway_bus.coordinator.shard import Record
from busway_bus.groups.offsets import NewOffsets, OffsetErrors, offset_record
from busway_bus.groups.shard import GroupShard
from busway_bus.kernel.steps import Pace
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.builder import BatchBuilder

_AT_A_STEP: Final = 50

OffsetsInBatch = Generator[None, None, tuple[list[Record], OffsetErrors]]
"""Steps that fill a batch; returns records and a code per offset."""


def offsets_in_batch(
    group_id: str,
    offsets: NewOffsets,
    batch: BatchBuilder,
    *,
    bytes_max: int,
    metadata_bytes_max: int,
    wall_ms: int,
) -> OffsetsInBatch:
    """Put offsets into a batch of `bytes_max`, all or none.

    `metadata_bytes_max`: of one offset. KafkaError: INVALID_COMMIT_OFFSET_SIZE, they do not fit.
    """
    records: list[Record] = []
    codes: OffsetErrors = {}
    pace = Pace(_AT_A_STEP)
    for partition, offset in offsets.items():
        codes[partition], record = offset_record(group_id, partition, offset, wall_ms, metadata_bytes_max)
        if record is not None:
            records.append(record)
            batch.append(wall_ms, *GroupShard.encode(record))
            if batch.size_bytes > bytes_max:
                raise KafkaError(
                    ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
                    f"{len(offsets)} offsets in one commit take more than max.message.bytes={bytes_max} of the offsets topic; "
                    "commit them in several requests",
                )
        if pace.over(1):
            yield
    return records, codes
