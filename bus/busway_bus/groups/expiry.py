"""What a group need not keep any more.

What lives here: the rule which committed offsets have expired (KIP-211). What does not: removing them (`shard`).
"""

from collections.abc import Callable
from uuid import UUID

from busway_bus.groups.group import Group
from busway_bus.groups.offsets import CommittedOffset


def expired(
    group: Group,
    offsets: dict[tuple[str, int], CommittedOffset],
    *,
    now: int,
    retention_ms: int,
    topic_exists: Callable[[str, UUID], bool],
) -> list[tuple[str, int]]:
    """The partitions whose offset of `group` is to be forgotten: their topic is gone, or nobody has needed them for `retention_ms`, or for
    the time that came with the offset (OffsetCommit 2 to 4).
    """
    partitions = []
    for (topic, partition), committed in offsets.items():
        base = group.ages_from(topic, committed)
        end = committed.expire_timestamp_ms
        if base is not None and end < 0:
            end = base + retention_ms
        if not topic_exists(topic, committed.topic_id) or (base is not None and now >= end):
            partitions.append((topic, partition))
    return partitions
