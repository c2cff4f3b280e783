"""Progress of topics and groups at one moment: end offsets, committed offsets, lag.

Here: reading it, for `status` and `top`.
Not here: a single group with its members (`groups`).
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from busway.admin.admin import Admin
from busway.admin.groups import GroupListing
from busway.admin.share_groups import SHARE
from busway.cluster.metadata import PartitionInfo, TopicInfo
from busway.errors import BrokerError
from busway.types import TopicPartition
from busway_protocol.errors import ErrorCode

_LATEST: Final = -1
_GROUPS_AT_ONCE: Final = 16
_GONE: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """A group's positions.

    Attributes:
        kind: as in `GroupListing`.
        offsets: committed offsets; start offsets of a share group.
        lags: records from there to the end; partitions with an unknown end are left out.
    """

    group_id: str
    kind: str
    state: str
    offsets: Mapping[TopicPartition, int]
    lags: Mapping[TopicPartition, int]


def is_offline(partition: PartitionInfo) -> bool:
    return partition.leader < 0


def is_under_replicated(partition: PartitionInfo) -> bool:
    return len(partition.isr) < len(partition.replicas)


async def read_ends(admin: Admin, topics: Iterable[TopicInfo]) -> dict[TopicPartition, int]:
    """Return the end offsets of all partitions with a leader."""
    return await admin.list_offsets(
        {
            TopicPartition(topic.name, partition.number): _LATEST
            for topic in topics
            for partition in topic.partitions
            if not is_offline(partition)
        }
    )


async def read_groups(admin: Admin, ends: Mapping[TopicPartition, int]) -> list[GroupProgress]:
    """Read all groups with offsets or members, sorted by name; some at once.

    Args:
        ends: end offsets of all partitions; others have no lag.
    """
    limit = asyncio.Semaphore(_GROUPS_AT_ONCE)

    async def read(group: GroupListing) -> GroupProgress | None:
        async with limit:
            try:
                return await _read_group(admin, group, ends)
            except BrokerError as problem:  # deleted since it was listed
                if problem.code in _GONE:
                    return None
                raise

    groups = await asyncio.gather(*(read(group) for group in await admin.list_groups()))
    return [group for group in groups if group is not None]


async def _read_group(admin: Admin, group: GroupListing, ends: Mapping[TopicPartition, int]) -> GroupProgress:
    if group.kind == SHARE:
        shared = await admin.list_share_group_offsets(group.group_id)
        offsets = {partition: at.start_offset for partition, at in shared.items()}
        known = {partition: at.lag for partition, at in shared.items() if at.lag is not None}
    else:
        committed = await admin.list_group_offsets(group.group_id)
        offsets = {partition: at.offset for partition, at in committed.items()}
        known = {}
    lags = {
        partition: max(0, ends[partition] - offset) for partition, offset in offsets.items() if partition in ends
    } | known
    return GroupProgress(group.group_id, group.kind, group.state, offsets, lags)
