"""What a group need not keep any more.

What lives here: the rule which committed offsets have expired (KIP-211). What does not: removing them (`shard`).
"""

from collections.abc import Callable
from uuid import UUID

from busway_bus.groups.classic import ClassicGroup
from busway_bus.groups.classic_states import State
from busway_bus.groups.offsets import CommittedOffset
from busway_protocol.assignors.consumer_protocol import PROTOCOL_TYPE


def expired(
    group: ClassicGroup,
    offsets: dict[tuple[str, int], CommittedOffset],
    *,
    now: int,
    retention_ms: int,
    topic_exists: Callable[[str, UUID], bool],
) -> list[tuple[str, int]]:
    """The partitions whose offset of `group` is to be forgotten: their topic is gone, or nobody has needed them for so long.

    Without members that is `retention_ms` after the last left, or after the commit if that came later: Kafka would drop what an
    administrator has set on a group that was empty for long. With members it is after the commit, for topics they do not read.
    An offset that came with a time of its own (OffsetCommit 2 to 4) goes by that instead.
    """
    partitions = []
    for (topic, partition), committed in offsets.items():
        base = _since(group, topic, committed)
        end = committed.expire_timestamp_ms
        if base is not None and end < 0:
            end = base + retention_ms
        if not topic_exists(topic, committed.topic_id) or (base is not None and now >= end):
            partitions.append((topic, partition))
    return partitions


def _since(group: ClassicGroup, topic: str, committed: CommittedOffset) -> int | None:
    """When the offset began to age; None while it is needed."""
    if group.protocol_type is None:
        # Committed by a consumer that only keeps its offsets here.
        return committed.commit_timestamp_ms
    if group.state is State.EMPTY:
        return max(group.state_since_ms, committed.commit_timestamp_ms)
    if group.state is State.STABLE and group.protocol_type == PROTOCOL_TYPE and not group.reads(topic):
        return committed.commit_timestamp_ms
    return None
