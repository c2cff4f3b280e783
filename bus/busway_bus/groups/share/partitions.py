"""Which share partitions of a group the share coordinator has to begin, has begun, or has to forget.

What lives here: what becomes of them with a subscription, a changed or deleted topic, offsets that are set or deleted, and the group's end,
each as a record. What does not: asking the share coordinator (`coordinator.share_group_coordinator`).
"""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final
from uuid import UUID

from busway_bus.groups.record_serde import Change
from busway_bus.groups.share.group import NamedPartitions, ShareGroup, SharePartitions
from busway_bus.groups.share.records import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)

RETRY_MS: Final = 30_000
"""A share partition that is being begun for longer is begun again, as in Kafka."""
Named = dict[UUID, NamedPartitions]


def missing(group: ShareGroup, names: AbstractSet[str], now: int) -> Named:
    """The partitions of these topics that nobody has begun, or for too long."""
    waits = now - group.partitions.written_ms < RETRY_MS
    found: Named = {}
    for topic in group.topics.among(names):
        topic_id = topic.topic_id
        known = _numbers(group.partitions.initialized, topic_id)
        if waits:
            known |= _numbers(group.partitions.initializing, topic_id)
        numbers = frozenset(range(len(topic.partitions))) - known
        if numbers:
            found[topic_id] = NamedPartitions(name=topic.name, partitions=numbers)
    return found


def _numbers(topics: Mapping[UUID, NamedPartitions], topic_id: UUID) -> frozenset[int]:
    known = topics.get(topic_id)
    return frozenset() if known is None else known.partitions


def begin(group: ShareGroup, topics: Named) -> Change:
    """The share coordinator is asked to begin these."""
    now = group.partitions
    deleting = {topic_id: name for topic_id, name in now.deleting.items() if topic_id not in topics}
    return record(group, replace(now, initializing=_joined(now.initializing, topics), deleting=deleting))


def begun(group: ShareGroup, topics: Named) -> Change:
    """It has begun them."""
    now = group.partitions
    initialized = _joined(now.initialized, topics)
    return record(group, replace(now, initializing=_without(now.initializing, topics), initialized=initialized))


def not_begun(group: ShareGroup, topics: Named) -> tuple[Change, ...]:
    """It could not."""
    now = group.partitions
    if not now.initializing:
        return ()
    return (record(group, replace(now, initializing=_without(now.initializing, topics))),)


def forget(group: ShareGroup, topic_ids: Collection[UUID]) -> tuple[dict[UUID, frozenset[int]], tuple[Change, ...]]:
    """The share coordinator is asked to forget what is begun of these topics: which partitions of them, those too that it was asked for
    before and may not have forgotten."""
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
    """It has forgotten these topics."""
    now = group.partitions
    deleting = {topic_id: name for topic_id, name in now.deleting.items() if topic_id not in topic_ids}
    return (record(group, replace(now, deleting=deleting)),) if len(deleting) < len(now.deleting) else ()


def forget_all(group: ShareGroup) -> tuple[dict[UUID, frozenset[int]], tuple[Change, ...]]:
    """The share coordinator is asked to forget all of the group, which is to be deleted."""
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
    """Topics are gone, and their share partitions with them."""
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
    """As it is written down."""
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
