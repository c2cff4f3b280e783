"""What the cluster looks like at one point of its metadata log: an immutable picture.

What lives here: `ClusterImage` and `apply`, the one way from a record to the next picture, live and at start alike.
What does not: deciding (`controller`), or acting on a change (`replication`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from busway_bus.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
NO_LEADER_CHANGE: Final = -2
"""What a PartitionChangeRecord says of a leader that stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """One partition: who leads it and who has it."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """One topic; its partitions are numbered by their place."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...] = ()


def _empty() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """All topics, settings and counters; `configs` is keyed by (resource type, resource name)."""

    topics: Mapping[str, TopicImage] = field(default_factory=_empty)
    names: Mapping[UUID, str] = field(default_factory=_empty)
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=_empty)
    features: Mapping[str, int] = field(default_factory=_empty)
    next_producer_id: int = 0

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """The settings that a topic has of its own."""
        return self.configs.get((TOPIC_RESOURCE, name), {})


def apply(image: ClusterImage, record: Any) -> ClusterImage:
    """The picture after `record`."""
    match record:
        case TopicRecord():
            topic = TopicImage(name=record.name, topic_id=record.topic_id)
            return replace(
                image,
                topics={**image.topics, record.name: topic},
                names={**image.names, record.topic_id: record.name},
            )
        case PartitionRecord():
            return _with_partition(image, record)
        case PartitionChangeRecord():
            return _with_change(image, record)
        case RemoveTopicRecord():
            name = image.names[record.topic_id]
            return replace(
                image,
                topics={key: topic for key, topic in image.topics.items() if key != name},
                names={key: known for key, known in image.names.items() if key != record.topic_id},
                configs={key: value for key, value in image.configs.items() if key != (TOPIC_RESOURCE, name)},
            )
        case ConfigRecord():
            resource = (record.resource_type, record.resource_name)
            values = {key: value for key, value in image.configs.get(resource, {}).items() if key != record.name}
            if record.value is not None:
                values[record.name] = record.value
            return replace(image, configs={**image.configs, resource: values})
        case ProducerIdsRecord():
            return replace(image, next_producer_id=record.next_producer_id)
        case FeatureLevelRecord():
            return replace(image, features={**image.features, record.name: record.feature_level})
    raise AssertionError(f"no rule for {type(record).__name__}")


def _with_partition(image: ClusterImage, record: PartitionRecord) -> ClusterImage:
    name = image.names[record.topic_id]
    topic = image.topics[name]
    partition = PartitionImage(
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
    )
    partitions = list(topic.partitions)
    if record.partition_id == len(partitions):
        partitions.append(partition)
    else:
        partitions[record.partition_id] = partition
    return replace(image, topics={**image.topics, name: replace(topic, partitions=tuple(partitions))})


def _with_change(image: ClusterImage, record: PartitionChangeRecord) -> ClusterImage:
    """What changed, over what was; a leader that is named, the same one too, begins a new epoch, as in Kafka."""
    topic = image.topics[image.names[record.topic_id]]
    before = topic.partitions[record.partition_id]
    changed = PartitionImage(
        leader=before.leader if record.leader == NO_LEADER_CHANGE else record.leader,
        leader_epoch=before.leader_epoch + (record.leader != NO_LEADER_CHANGE),
        partition_epoch=before.partition_epoch + 1,
        replicas=before.replicas if record.replicas is None else tuple(record.replicas),
        isr=before.isr if record.isr is None else tuple(record.isr),
    )
    partitions = list(topic.partitions)
    partitions[record.partition_id] = changed
    return replace(image, topics={**image.topics, topic.name: replace(topic, partitions=tuple(partitions))})
