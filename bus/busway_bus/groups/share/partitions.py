"""A group's share partitions: initializing, initialized, deleting.

Here: the records of changes.
Not here: requests to the share coordinator (`coordinator.share_group_coordinator`).
"""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final
from uuid import UUID

from busway_bus.groups.records import Change
from busway_bus.groups.share.group import NamedPartitions, ShareGroup, SharePartitions
from busway_bus.groups.share.records import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)

RETRY_MS: Final = 30_000
"""Delay before a repeated initialization, as in Kafka."""
Named = dict[UUID, NamedPartitions]


def missing(group: ShareGroup, names: AbstractSet[str], now: int) -> Named:
    """Return the partitions of these topics to initialize.

    They are neither initialized nor, for less than `RETRY_MS`, initializing.
    """
    waits = now - group.partitions.written_ms < RETRY_MS
    named: Named = {}
    for topic in group.topics.among(names):
        topic_id = topic.topic_id
        known = _numbers(group.partitions.initialized, topic_id)
        if waits:
            known |= _numbers(group.partitions.initializing, topic_id)
        partitions = frozenset(range(len(topic.partitions))) - known
        if partitions:
            named[topic_id] = NamedPartitions(name=topic.name, partitions=partitions)
    return named


def _numbers(topics: Mapping[UUID, NamedPartitions], topic_id: UUID) -> frozenset[int]:
    known = topics.get(topic_id)
    return frozenset() if known is None else known.partitions


def begin(group: ShareGroup, topics: Named) -> Change:
    """Mark partitions as initializing, before requesting it from the share coordinator."""
    now = group.partitions
    deleting = {topic_id: name for topic_id, name in now.deleting.items() if topic_id not in topics}
    return record(group, replace(now, initializing=_joined(now.initializing, topics), deleting=deleting))


def begun(group: ShareGroup, topics: Named) -> Change:
    now = group.partitions
    initialized = _joined(now.initialized, topics)
    return record(group, replace(now, initializing=_without(now.initializing, topics), initialized=initialized))


def not_begun(group: ShareGroup, topics: Named) -> tuple[Change, ...]:
    now = group.partitions
    if not now.initializing:
        return ()
    return (record(group, replace(now, initializing=_without(now.initializing, topics))),)


def forget(group: ShareGroup, topic_ids: Collection[UUID]) -> tuple[dict[UUID, frozenset[int]], tuple[Change, ...]]:
    """Mark topics as deleting, before requesting it from the share coordinator.

    Returns:
        The initialized partitions to delete, also those of an earlier request; and the record.
    """
    now = group.partitions
    wanted: dict[UUID, frozenset[int]] = {}
    for topic_id in topic_ids:
        if topic_id in now.initialized:
            wanted[topic_id] = now.initialized[topic_id].partitions
        elif topic_id in now.deleting:
            wanted[topic_id] = frozenset(range(group.topics.partitions(topic_id)))
    if not wanted:
        return {}, ()
    names = {topic_id: known.name for topic_id, known in now.initialized.items() if topic_id in wanted}
    initialized = {topic_id: known for topic_id, known in now.initialized.items() if topic_id not in wanted}
    return wanted, (record(group, replace(now, initialized=initialized, deleting={**now.deleting, **names})),)


def forgotten(group: ShareGroup, topic_ids: Collection[UUID]) -> tuple[Change, ...]:
    """Remove topics whose state the share coordinator deleted."""
    now = group.partitions
    deleting = {topic_id: name for topic_id, name in now.deleting.items() if topic_id not in topic_ids}
    return (record(group, replace(now, deleting=deleting)),) if len(deleting) < len(now.deleting) else ()


def forget_all(group: ShareGroup) -> tuple[dict[UUID, frozenset[int]], tuple[Change, ...]]:
    """Mark all topics as deleting, before the group's deletion."""
    now = group.partitions
    wanted: dict[UUID, frozenset[int]] = {}
    names: dict[UUID, str] = {}
    for topic_id, known in (*now.initialized.items(), *now.initializing.items()):
        wanted[topic_id] = wanted.get(topic_id, frozenset()) | known.partitions
        names[topic_id] = known.name
    for topic_id, name in now.deleting.items():
        count = group.topics.partitions(topic_id)
        if count:
            wanted[topic_id] = wanted.get(topic_id, frozenset()) | frozenset(range(count))
            names[topic_id] = name
    if not wanted:
        return {}, ()
    return wanted, (record(group, SharePartitions(deleting=names)),)


def topics_deleted(group: ShareGroup, topic_ids: Collection[UUID]) -> tuple[Change, ...]:
    now, gone = group.partitions, set(topic_ids)
    if not gone & {*now.initializing, *now.initialized, *now.deleting}:
        return ()
    return (
        record(
            group,
            replace(
                now,
                initializing={topic_id: known for topic_id, known in now.initializing.items() if topic_id not in gone},
                initialized={topic_id: known for topic_id, known in now.initialized.items() if topic_id not in gone},
                deleting={topic_id: name for topic_id, name in now.deleting.items() if topic_id not in gone},
            ),
        ),
    )


def _joined(known: Mapping[UUID, NamedPartitions], more: Named) -> Named:
    return {
        **known,
        **{
            topic_id: replace(topic, partitions=topic.partitions | _numbers(known, topic_id))
            for topic_id, topic in more.items()
        },
    }


def _without(known: Mapping[UUID, NamedPartitions], less: Named) -> Named:
    left = {
        topic_id: replace(topic, partitions=topic.partitions - _numbers(less, topic_id))
        for topic_id, topic in known.items()
    }
    return {topic_id: topic for topic_id, topic in left.items() if topic.partitions}


def record(group: ShareGroup, partitions: SharePartitions) -> Change:
    return (
        ShareGroupStatePartitionMetadataKey(group_id=group.group_id),
        ShareGroupStatePartitionMetadataValue(
            initializing_topics=_infos(partitions.initializing),
            initialized_topics=_infos(partitions.initialized),
            deleting_topics=[
                TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in sorted(partitions.deleting.items())
            ],
        ),
    )


def _infos(topics: Mapping[UUID, NamedPartitions]) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions))
        for topic_id, topic in sorted(topics.items())
    ]
