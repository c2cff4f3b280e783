"""Offsets set or removed by users (KIP-875).

Here: checking and storing those of sources and sinks.
Not here: whether the connector is stopped (`worker`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from busway import Admin, BrokerError, Producer, TopicPartition
from busway_connect.connector import ConfigInvalid, Connector, Offset, Source
from busway_connect.providers import Providers
from busway_connect.redaction import References
from busway_connect.runtime.refusals import Refused
from busway_connect.runtime.runner import Runner
from busway_connect.runtime.sink_task import group_of
from busway_connect.runtime.storage import OffsetStore

Changes: TypeAlias = Sequence[tuple[Mapping[str, Any], Offset | None]]
"""Offsets by partition; None removes one."""


async def store_offsets(offsets: OffsetStore, name: str, changes: Changes | None) -> None:
    """Store offsets; None removes all."""
    chosen = _chosen(offsets, name, changes)
    await asyncio.gather(*(offsets.put(name, partition, offset) for partition, offset in chosen))


async def store_in_transaction(
    offsets: OffsetStore, bootstrap: str, producer: Producer, name: str, changes: Changes | None
) -> None:
    """Store offsets atomically; None removes all.

    Args:
        producer: of the source task's transactional id, not started; it fences the task's.
    """
    async with producer:
        await offsets.catch_up(bootstrap)
        async with producer.transaction():
            chosen = _chosen(offsets, name, changes)
            sent = [await offsets.send(producer, name, partition, offset) for partition, offset in chosen]
        offsets.committed(sent)


def _chosen(offsets: OffsetStore, name: str, changes: Changes | None) -> Changes:
    return [(partition, None) for partition, _ in offsets.of(name)] if changes is None else changes


def check_offsets(kind: type[Connector] | None, providers: Providers, runner: Runner, changes: Changes) -> None:
    """Check that a source could continue from these offsets; raises `Refused` 400. May compute for long."""
    if kind is None or not issubclass(kind, Source):
        return
    try:
        config = providers.resolved(runner.config)
    except ConfigInvalid as wrong:
        raise Refused(400, str(wrong)) from None
    for partition, offset in changes:
        problem = None if offset is None else kind.offset_problem(config, partition, offset)
        if problem is not None:
            said = References(runner.config, config).redacted("offsets", problem)
            raise Refused(400, f"Failed to modify offsets for source connector {runner.name}: {said}")


async def alter_group(admin: Admin, name: str, changes: Changes) -> None:
    """Set or remove offsets of a sink in its consumer group; raises `Refused` 400."""
    sets: dict[TopicPartition, int] = {}
    forgets: list[TopicPartition] = []
    for partition, offset in changes:
        if not {"kafka_topic", "kafka_partition"} <= partition.keys():
            raise Refused(
                400,
                "The partition for a sink connector offset must contain the keys 'kafka_topic' and 'kafka_partition'",
            )
        try:
            where = TopicPartition(str(partition["kafka_topic"]), int(partition["kafka_partition"]))
            if offset is None:
                forgets.append(where)
                continue
            if "kafka_offset" not in offset:
                raise Refused(
                    400, "The offset for a sink connector should either be null or contain the key 'kafka_offset'"
                )
            sets[where] = int(offset["kafka_offset"])
        except (TypeError, ValueError):
            raise Refused(
                400, f"Partition and offset of a sink are whole numbers, not {dict(partition)} and {offset}"
            ) from None
        if sets[where] < 0:
            raise Refused(400, f"Failed to modify offsets for sink connector {name}: an offset is 0 or above")
    try:
        if sets:
            await admin.alter_group_offsets(group_of(name), sets)
        if forgets:
            await admin.delete_group_offsets(group_of(name), forgets)
    except BrokerError as problem:
        raise Refused(400, f"Failed to modify offsets for sink connector {name}: {problem}") from None
