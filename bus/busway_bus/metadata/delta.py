"""From records to the next image, and what differs in it.

What lives here: `Delta`, the one way from records to a picture, live and at start alike; it costs what the records change and one
copy of a mapping, however many topics there are. What does not: deciding (`controller`), or acting on a change (`replication`).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from busway_bus.metadata.image import NO_LEADER_CHANGE, TOPIC_RESOURCE, ClusterImage, PartitionImage, TopicImage
from busway_bus.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)


class BrokenHistory(ValueError):
    """A record that cannot follow those before it; the text says why."""


def placement(record: PartitionRecord) -> PartitionImage:
    """The partition that a record describes."""
    return PartitionImage(
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
    )


class Delta:
    """Records put on an image one after the other.

    Attributes:
        changed: names of the topics that came to be or got partitions, in order.
        removed: id → name of the topics that went.
        configured: names of the topics whose settings changed.
        notes: what records said that could not be so and is harmless, for the log.
    """

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._topics: dict[str, TopicImage] | None = None
        self._names: dict[UUID, str] = {}
        self._configs: dict[tuple[int, str], Mapping[str, str]] | None = None
        self._features: Mapping[str, int] = image.features
        self._next_producer_id = image.next_producer_id
        self._partitions: dict[str, list[PartitionImage]] = {}
        self.changed: dict[str, None] = {}
        self.removed: dict[UUID, str] = {}
        self.configured: set[str] = set()
        self.notes: list[str] = []

    def apply(self, record: Any) -> None:
        """Put one record on it.

        Raises:
            BrokenHistory: it is about a topic or partition that is not there.
        """
        match record:
            case TopicRecord():
                self._create(record)
            case PartitionRecord():
                self._place(record)
            case PartitionChangeRecord():
                self._change(record)
            case RemoveTopicRecord():
                self._remove(record.topic_id)
            case ConfigRecord():
                self._configure(record)
            case ProducerIdsRecord():
                self._next_producer_id = record.next_producer_id
            case FeatureLevelRecord():
                self._features = {**self._features, record.name: record.feature_level}
            case _:
                raise AssertionError(f"no rule for {type(record).__name__}")

    def image(self) -> ClusterImage:
        """The picture after all of them."""
        image = self._image
        if self._topics is not None:
            for name, partitions in self._partitions.items():
                self._topics[name] = replace(self._topics[name], partitions=tuple(partitions))
            self._partitions = {}
            image = replace(image, topics=dict(self._topics), names=dict(self._names))
        if self._configs is not None:
            image = replace(image, configs=dict(self._configs))
        return replace(image, features=self._features, next_producer_id=self._next_producer_id)

    @property
    def _all_topics(self) -> dict[str, TopicImage]:
        if self._topics is None:
            self._topics = dict(self._image.topics)
            self._names = dict(self._image.names)
        return self._topics

    @property
    def _all_configs(self) -> dict[tuple[int, str], Mapping[str, str]]:
        if self._configs is None:
            self._configs = dict(self._image.configs)
        return self._configs

    def _create(self, record: TopicRecord) -> None:
        older = self._all_topics.get(record.name)
        if older is not None:
            # Two records of one creation: the first answer was lost with its client, and the client asked again. What was written
            # since then was written under the second id.
            self.notes.append(
                f"topic {record.name} was created twice; id {record.topic_id} counts, not {older.topic_id}"
            )
            del self._names[older.topic_id]
        self._all_topics[record.name] = TopicImage(name=record.name, topic_id=record.topic_id)
        self._names[record.topic_id] = record.name
        self._partitions[record.name] = []
        self.changed[record.name] = None

    def _place(self, record: PartitionRecord) -> None:
        topics = self._all_topics
        name = self._names.get(record.topic_id)
        if name is None:
            raise BrokenHistory(
                f"partition {record.partition_id} belongs to the topic id {record.topic_id}, which is not there"
            )
        partitions = self._partitions.get(name)
        if partitions is None:
            partitions = self._partitions[name] = list(topics[name].partitions)
        placed = placement(record)
        if record.partition_id == len(partitions):
            partitions.append(placed)
        elif 0 <= record.partition_id < len(partitions):
            partitions[record.partition_id] = placed
        else:
            raise BrokenHistory(f"partition {record.partition_id} of {name} comes after {len(partitions)} others")
        self.changed[name] = None

    def _change(self, record: PartitionChangeRecord) -> None:
        """What changed, over what was; a leader that is named, the same one too, begins a new epoch, as in Kafka."""
        topics = self._all_topics
        name = self._names.get(record.topic_id, "")
        partitions = self._partitions.get(name)
        if partitions is None:
            partitions = list(topics[name].partitions) if name else []
        if not 0 <= record.partition_id < len(partitions):
            raise BrokenHistory(f"partition {record.partition_id} of {record.topic_id} changed, which is not there")
        before = partitions[record.partition_id]
        partitions[record.partition_id] = PartitionImage(
            leader=before.leader if record.leader == NO_LEADER_CHANGE else record.leader,
            leader_epoch=before.leader_epoch + (record.leader != NO_LEADER_CHANGE),
            partition_epoch=before.partition_epoch + 1,
            replicas=before.replicas if record.replicas is None else tuple(record.replicas),
            isr=before.isr if record.isr is None else tuple(record.isr),
        )
        self._partitions[name] = partitions
        self.changed[name] = None

    def _remove(self, topic_id: UUID) -> None:
        topics = self._all_topics
        name = self._names.pop(topic_id, None)
        if name is None:
            # A deletion that was asked for twice, or that of an id which a second creation took over: nothing is lost by it.
            self.notes.append(f"the topic id {topic_id} was removed although it is not there")
            return
        del topics[name]
        self._partitions.pop(name, None)
        self._all_configs.pop((TOPIC_RESOURCE, name), None)
        self.changed.pop(name, None)
        self.configured.discard(name)
        self.removed[topic_id] = name

    def _configure(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        values = {key: value for key, value in self._all_configs.get(resource, {}).items() if key != record.name}
        if record.value is not None:
            values[record.name] = record.value
        self._all_configs[resource] = values
        if record.resource_type == TOPIC_RESOURCE:
            self.configured.add(record.resource_name)
