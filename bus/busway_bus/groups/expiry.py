"""Expiry of committed offsets (KIP-211).

Here: the rule, and the bounded steps of the check.
Not here: deletion (`shard`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from busway_bus.groups.group import Group
from busway_bus.groups.offsets import CommittedOffset, TopicPartition
from busway_bus.kernel.limits import GROUPS_PER_EXPIRY_MAX, OFFSETS_PER_EXPIRY_MAX


def parts(
    group_ids: Iterable[str], offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]]
) -> Iterator[dict[str, Sequence[TopicPartition]]]:
    """Yield all groups with their partitions, in bounded parts.

    Groups may be created and deleted between two parts.
    """
    part: dict[str, Sequence[TopicPartition]] = {}
    count = 0
    for group_id in tuple(group_ids):
        partitions = tuple(offsets.get(group_id, ()))
        for start in range(0, max(len(partitions), 1), OFFSETS_PER_EXPIRY_MAX):
            chunk = partitions[start : start + OFFSETS_PER_EXPIRY_MAX]
            if part and (len(part) >= GROUPS_PER_EXPIRY_MAX or count + len(chunk) > OFFSETS_PER_EXPIRY_MAX):
                yield part
                part, count = {}, 0
            part[group_id] = chunk
            count += len(chunk)
    if part:
        yield part


def expired(
    group: Group,
    offsets: dict[tuple[str, int], CommittedOffset],
    *,
    now: int,
    retention_ms: int,
    topic_exists: Callable[[str, UUID], bool],
) -> list[tuple[str, int]]:
    """Return the partitions of `group` whose offset has expired.

    It expires with its topic, `retention_ms` after it began to age, or at its own time (OffsetCommit 2 to 4).
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
