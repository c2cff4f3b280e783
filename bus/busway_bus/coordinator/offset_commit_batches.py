"""Commits of very many offsets, in parts or as one batch.

What lives here: the parts, and codes after a refused one. What does not: writing them (`groups`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Final

from busway_bus.coordinator.shard import Record
from busway_bus.groups.offsets import NewOffsets, OffsetErrors, offset_record
from busway_bus.groups.shard import GroupShard
from busway_bus.kernel.limits import OFFSETS_PER_COMMIT_MAX
from busway_bus.kernel.steps import Pace
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.builder import BatchBuilder

_AT_A_STEP: Final = 50


async def in_stretches(offsets: NewOffsets, write: Callable[[NewOffsets], Awaitable[OffsetErrors]]) -> OffsetErrors:
    """Write offsets, `OFFSETS_PER_COMMIT_MAX` at a time; return their codes.

    Each part is checked as a commit of its own. Parts before a refused one stay written.

    Raises:
        KafkaError: the first part is refused.
    """
    if len(offsets) <= OFFSETS_PER_COMMIT_MAX:
        return await write(offsets)
    codes: OffsetErrors = {}
    partitions = tuple(offsets)
    for start in range(0, len(partitions), OFFSETS_PER_COMMIT_MAX):
        part = {partition: offsets[partition] for partition in partitions[start : start + OFFSETS_PER_COMMIT_MAX]}
        try:
            codes.update(await write(part))
        except KafkaError as problem:
            if not codes:
                raise
            codes.update(dict.fromkeys(part, problem.code))
        await asyncio.sleep(0)
    return codes


def transactional_offsets(
    group_id: str,
    offsets: NewOffsets,
    batch: BatchBuilder,
    *,
    bytes_max: int,
    metadata_bytes_max: int,
    wall_ms: int,
) -> Generator[None, None, tuple[list[Record], OffsetErrors]]:
    """Add offsets to a batch in steps; return their records and codes.

    Args:
        bytes_max: of the whole batch.
        metadata_bytes_max: of one offset.

    Raises:
        KafkaError: INVALID_COMMIT_OFFSET_SIZE, they do not fit. None is committed, as in Kafka.
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
