"""Builds the next image from records, with what differs in it.

Here: `Delta`, the only way from records to an image; its cost grows with the change.
Not here: deciding (`controller`), acting on a change (`replication`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from busway_bus.metadata.image import (
    NO_LEADER_CHANGE,
    TOPIC_RESOURCE,
    Address,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
    metric_name,
)
from busway_bus.metadata.partition_places import Change, updated
from busway_bus.metadata.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)


class BrokenHistory(ValueError):
    """A record that cannot follow those before it."""


def placement(record: PartitionRecord) -> PartitionImage:
    return PartitionImage(
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        directories=tuple(record.directories),
        removing=tuple(record.removing_replicas),
        adding=tuple(record.adding_replicas),
        recovery_state=record.leader_recovery_state,
        elr=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
    )


def merged(before: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """Apply changed fields; a named leader, even the same, begins a new epoch."""
    leads = record.leader != NO_LEADER_CHANGE
    return PartitionImage(
        leader=record.leader if leads else before.leader,
        leader_epoch=before.leader_epoch + leads,
        partition_epoch=before.partition_epoch + 1,
        replicas=_newer(before.replicas, record.replicas),
        isr=_newer(before.isr, record.isr),
        directories=before.directories if record.directories is None else tuple(record.directories),
        removing=_newer(before.removing, record.removing_replicas),
        adding=_newer(before.adding, record.adding_replicas),
        recovery_state=before.recovery_state if record.leader_recovery_state < 0 else record.leader_recovery_state,
        elr=_newer(before.elr, record.eligible_leader_replicas),
        last_known_elr=_newer(before.last_known_elr, record.last_known_elr),
    )


def _newer(before: tuple[int, ...], changed: list[int] | None) -> tuple[int, ...]:
    return before if changed is None else tuple(changed)


def registration(record: RegisterBrokerRecord) -> BrokerImage:
    return BrokerImage(
        node_id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation=record.incarnation_id,
        addresses={
            end.name: Address(host=end.host, port=end.port, security_protocol=end.security_protocol)
            for end in record.end_points
        },
        rack=record.rack,
        fenced=record.fenced,
        directories=tuple(record.log_dirs),
        features={
            feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in record.features
        },
        in_controlled_shutdown=record.in_controlled_shutdown,
        cordoned_directories=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
    )


class Delta:
    """Records applied to an image in order.

    Attributes:
        changed: names of new topics and topics with changed partitions, in order.
        removed: id → name of the deleted topics.
        configured: names of topics with changed settings.
        registered: ids of new or changed brokers.
        unregistered: ids of removed brokers.
        notes: harmless contradictions, for the logger.
    """

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._topics: dict[str, TopicImage | None] = {}
        self._partitions: dict[str, list[PartitionImage]] = {}
        self._touched: dict[str, set[int] | None] = {}
        self._names: dict[UUID, str | None] = {}
        self._metric_names: dict[str, str | None] = {}
        self._configs: dict[tuple[int, str], Mapping[str, str] | None] = {}
        self._brokers: dict[int, BrokerImage | None] = {}
        self._features: dict[str, int | None] = {}
        self._next_producer_id = image.next_producer_id
        self.changed: dict[str, None] = {}
        self.removed: dict[UUID, str] = {}
        self.configured: set[str] = set()
        self.configured_else = False
        self.registered: set[int] = set()
        self.unregistered: set[int] = set()
        self.notes: list[str] = []

    @property
    def base(self) -> ClusterImage:
        """The image before the records; of a snapshot's delta, an empty one."""
        return self._image

    @classmethod
    def whole(cls, image: ClusterImage) -> "Delta":
        """Return the delta that names all of an image as changed, for a follower that begins with it."""
        delta = cls(image)
        delta.changed = dict.fromkeys(image.topics)
        delta.configured = {name for kind, name in image.configs if kind == TOPIC_RESOURCE}
        delta.configured_else = True
        delta.registered = set(image.brokers)
        return delta

    @property
    def quiet(self) -> bool:
        on_topics = self.changed or self.removed or self.configured
        return not (on_topics or self.configured_else or self.registered or self.unregistered)

    def apply(self, record: Any) -> None:
        """Apply one record.

        Raises:
            BrokenHistory: its topic, partition or broker does not exist, or the broker has another epoch.
        """
        match record:
            case PartitionRecord():
                self._place(record)
            case PartitionChangeRecord():
                self._change(record)
            case TopicRecord():
                self._create(record)
            case RemoveTopicRecord():
                self._remove(record.topic_id)
            case ClearElrRecord():
                self._clear_elr(record.topic_name)
            case ConfigRecord():
                self._configure(record)
            case ProducerIdsRecord():
                self._next_producer_id = record.next_producer_id
            case FeatureLevelRecord():
                self._features[record.name] = record.feature_level or None
            case _:
                self._apply_to_broker(record)

    def _apply_to_broker(self, record: Any) -> None:
        match record:
            case RegisterBrokerRecord():
                self._set_broker(registration(record))
            case BrokerRegistrationChangeRecord():
                self._change_broker(record)
            case FenceBrokerRecord():
                self._set_broker(replace(self._broker(record, record.id, record.epoch), fenced=True))
            case UnfenceBrokerRecord():
                self._set_broker(replace(self._broker(record, record.id, record.epoch), fenced=False))
            case UnregisterBrokerRecord():
                self._broker(record, record.broker_id, record.broker_epoch)
                self._brokers[record.broker_id] = None
                self.registered.discard(record.broker_id)
                self.unregistered.add(record.broker_id)
            case _:
                raise AssertionError(f"no rule for {type(record).__name__}")

    def image(self) -> ClusterImage:
        for name, partitions in self._partitions.items():
            topic = self._topic(name)
            assert topic is not None, name
            self._topics[name] = replace(topic, partitions=tuple(partitions))
        self._partitions = {}
        image = self._image
        return replace(
            image,
            topics=image.topics.updated(self._topics),
            names=image.names.updated(self._names),
            metric_names=image.metric_names.updated(self._metric_names),
            configs=image.configs.updated(self._configs),
            brokers=image.brokers.updated(self._brokers),
            features=image.features.updated(self._features),
            next_producer_id=self._next_producer_id,
            places=updated(image.places, self._changes()),
        )

    def _changes(self) -> Iterator[Change]:
        """Iterate over changed partitions; a new or deleted topic has all of its own."""
        for name, touched in self._touched.items():
            older, newer = self._image.topics.get(name), self._topics[name]
            before, after = older.partitions if older else (), newer.partitions if newer else ()
            for partition in range(max(len(before), len(after))) if touched is None else touched:
                yield (
                    name,
                    partition,
                    before[partition] if partition < len(before) else None,
                    after[partition] if partition < len(after) else None,
                )

    # State after the records so far

    def _touch(self, name: str, partition: int) -> None:
        touched = self._touched.setdefault(name, set())
        if touched is not None:
            touched.add(partition)

    def _topic(self, name: str) -> TopicImage | None:
        return self._topics[name] if name in self._topics else self._image.topics.get(name)

    def _name(self, topic_id: UUID) -> str | None:
        return self._names[topic_id] if topic_id in self._names else self._image.names.get(topic_id)

    def _partitions_of(self, name: str) -> list[PartitionImage]:
        partitions = self._partitions.get(name)
        if partitions is None:
            topic = self._topic(name)
            assert topic is not None, name
            partitions = self._partitions[name] = list(topic.partitions)
        return partitions

    def _settings(self, resource: tuple[int, str]) -> Mapping[str, str]:
        if resource in self._configs:
            return self._configs[resource] or {}
        return self._image.configs.get(resource, {})

    # Records

    def _create(self, record: TopicRecord) -> None:
        older = self._topic(record.name)
        if older is not None:
            # Two records of one creation: the first response was lost, and the client retried. Records written since then have
            # the second id.
            self.notes.append(
                f"topic {record.name} was created twice; id {record.topic_id} counts, not {older.topic_id}"
            )
            self._names[older.topic_id] = None
        self._topics[record.name] = TopicImage(name=record.name, topic_id=record.topic_id)
        self._names[record.topic_id] = record.name
        if (shown := metric_name(record.name)) is not None:
            self._metric_names[shown] = record.name
        self._partitions[record.name] = []
        self._touched[record.name] = None
        self.changed[record.name] = None

    def _place(self, record: PartitionRecord) -> None:
        name = self._name(record.topic_id)
        if name is None:
            raise BrokenHistory(
                f"partition {record.partition_id} belongs to the topic id {record.topic_id}, which is not there"
            )
        partitions = self._partitions_of(name)
        placed = placement(record)
        if record.partition_id == len(partitions):
            partitions.append(placed)
        elif 0 <= record.partition_id < len(partitions):
            partitions[record.partition_id] = placed
        else:
            raise BrokenHistory(f"partition {record.partition_id} of {name} comes after {len(partitions)} others")
        self._touch(name, record.partition_id)
        self.changed[name] = None

    def _change(self, record: PartitionChangeRecord) -> None:
        name = self._name(record.topic_id)
        partitions = [] if name is None else self._partitions_of(name)
        if name is None or not 0 <= record.partition_id < len(partitions):
            raise BrokenHistory(f"partition {record.partition_id} of {record.topic_id} changed, which is not there")
        partitions[record.partition_id] = merged(partitions[record.partition_id], record)
        self._touch(name, record.partition_id)
        self.changed[name] = None

    def _broker(self, record: Any, node_id: int, epoch: int) -> BrokerImage:
        broker = self._brokers[node_id] if node_id in self._brokers else self._image.brokers.get(node_id)
        if broker is None or broker.epoch != epoch:
            current = "is not registered" if broker is None else f"has epoch {broker.epoch}"
            raise BrokenHistory(f"{type(record).__name__} is of broker {node_id} in epoch {epoch}, which {current}")
        return broker

    def _set_broker(self, broker: BrokerImage) -> None:
        self._brokers[broker.node_id] = broker
        self.registered.add(broker.node_id)
        self.unregistered.discard(broker.node_id)

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        if record.fenced not in {-1, 0, 1} or record.in_controlled_shutdown not in {0, 1}:
            raise BrokenHistory(f"the registration of broker {record.broker_id} changed to an unknown state: {record}")
        before = self._broker(record, record.broker_id, record.broker_epoch)
        cordoned = record.cordoned_log_dirs
        self._set_broker(
            replace(
                before,
                fenced=before.fenced if not record.fenced else record.fenced > 0,
                in_controlled_shutdown=before.in_controlled_shutdown or record.in_controlled_shutdown > 0,
                directories=tuple(record.log_dirs) or before.directories,
                cordoned_directories=before.cordoned_directories if cordoned is None else tuple(cordoned),
            )
        )

    def _clear_elr(self, topic_name: str) -> None:
        """Clear eligible leader replicas of one topic, or of all."""
        names = [topic_name] if topic_name else list({**self._image.topics, **self._topics})
        for name in names:
            topic = self._topic(name)
            if topic is None:
                continue
            for index, partition in enumerate(self._partitions.get(name, topic.partitions)):
                if partition.elr or partition.last_known_elr:
                    cleared = PartitionChangeRecord(
                        topic_id=topic.topic_id, partition_id=index, eligible_leader_replicas=[], last_known_elr=[]
                    )
                    self._change(cleared)

    def _remove(self, topic_id: UUID) -> None:
        name = self._name(topic_id)
        if name is None:
            # A repeated deletion, or that of an id which a second creation replaced: nothing is lost.
            self.notes.append(f"the topic id {topic_id} was removed although it is not there")
            return
        self._names[topic_id] = None
        self._topics[name] = None
        self._partitions.pop(name, None)
        self._touched[name] = None
        if (shown := metric_name(name)) is not None:
            self._metric_names[shown] = None
        self._configs[TOPIC_RESOURCE, name] = None
        self.changed.pop(name, None)
        self.configured.discard(name)
        self.removed[topic_id] = name

    def _configure(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        values = {key: value for key, value in self._settings(resource).items() if key != record.name}
        if record.value is not None:
            values[record.name] = record.value
        self._configs[resource] = values or None
        if record.resource_type == TOPIC_RESOURCE:
            self.configured.add(record.resource_name)
        else:
            self.configured_else = True  # the caller's reply follows the image
