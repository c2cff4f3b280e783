"""What a group need not keep any more.

What lives here: the rule which committed offsets have expired (KIP-211), and the parts in which all are looked at. What does not: removing
them (`shard`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from busway_bus.groups.group import Group
from busway_bus.groups.offsets import CommittedOffset, Place
from busway_bus.kernel.limits import GROUPS_PER_EXPIRY_MAX, OFFSETS_PER_EXPIRY_MAX


def parts(
    group_ids: Iterable[str], offsets: Mapping[str, Mapping[Place, CommittedOffset]]
) -> Iterator[dict[str, Sequence[Place]]]:
    """Yield all groups with their partitions, in bounded parts; a group with many is in several.

    A part has at most `GROUPS_PER_EXPIRY_MAX` groups and `OFFSETS_PER_EXPIRY_MAX` partitions. Groups may come and go between two parts.
    """
    part: dict[str, Sequence[Place]] = {}
    count = 0
    for group_id in tuple(group_ids):
        places = tuple(offsets.get(group_id, ()))
        for start in range(0, max(len(places), 1), OFFSETS_PER_EXPIRY_MAX):
            some = places[start : start + OFFSETS_PER_EXPIRY_MAX]
            if part and (len(part) >= GROUPS_PER_EXPIRY_MAX or count + len(some) > OFFSETS_PER_EXPIRY_MAX):
                yield part
                part, count = {}, 0
            part[group_id] = some
            count += len(some)
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
