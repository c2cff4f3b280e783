"""Commands on topics: create, grow, delete.

Here: rules for names and counts, as in Kafka's `Topic`; dot and underscore collide, as in metric names. Texts are
Kafka's: clients parse some.
Not here: the placement of partitions (`placement`).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from busway_bus.controller.controller import Surroundings, only_checked, several
from busway_bus.controller.placement import check_replicas, new_partitions, place
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.config_def import ConfigError
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.limits import CREATED_PARTITIONS_MAX, PARTITIONS_PER_TOPIC_MAX, TOPIC_NAME_CHARS_MAX
from busway_bus.kernel.topic_configs import check_not_fixed, check_not_throttled, parse_topic_configs
from busway_bus.kernel.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from busway_bus.metadata.delta import placement
from busway_bus.metadata.features import check_levels
from busway_bus.metadata.image import TOPIC_RESOURCE, ClusterImage, TopicImage, metric_name
from busway_bus.metadata.records import TOPIC, ConfigRecord, RemoveTopicRecord, TopicRecord
from busway_protocol.errors import ErrorCode, KafkaError

DEFAULT: Final = -1
"""For num.partitions and default.replication.factor (KIP-464)."""
_NOT_POSITIVE: Final = "Number of partitions was set to an invalid non-positive value."
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")


def check_name(name: str) -> None:
    """Refuse an invalid topic name: INVALID_TOPIC_EXCEPTION."""
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in {".", ".."}:
        problem = f"'{name}' is not allowed"
    elif len(name) > TOPIC_NAME_CHARS_MAX:
        problem = f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_CHARS_MAX}"
    elif not _NAME.match(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if problem:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create.

    Attributes:
        assignments: (number, replicas) by partition; with any, the counts must be DEFAULT.
    """

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopics:
    """Create topics independently; reply each one's image or error."""

    topics: tuple[NewTopic, ...]
    validate_only: bool = False

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[tuple[TopicImage | KafkaError, ...]]:
        """Decide on all with one image: of earlier topics of the request only the names matter."""
        created: dict[str, str] = {}
        records: list[object] = []
        replies: list[TopicImage | KafkaError] = []
        for topic in self.topics:
            try:
                _check_created(created, topic.name)
                decision = create(image, topic, surroundings)
            except KafkaError as problem:
                replies.append(problem)
                continue
            created[metric_name(topic.name) or topic.name] = topic.name
            replies.append(decision.reply)
            records += decision.records
        return only_checked(Decision(records=tuple(records), reply=tuple(replies)), validate_only=self.validate_only)


def check_count(topics: Iterable[NewTopic], config: BrokerConfig) -> None:
    """Refuse a whole request with far too many partitions: POLICY_VIOLATION."""
    default = config.get("num.partitions")
    counts = (
        len(topic.assignments) or (default if topic.partitions == DEFAULT else topic.partitions) for topic in topics
    )
    if sum(counts) > CREATED_PARTITIONS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def create(image: ClusterImage, topic: NewTopic, surroundings: Surroundings) -> Decision[TopicImage]:
    """Create one topic.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION, INVALID_REQUEST, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS,
            INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT or INVALID_CONFIG.
    """
    _check_new_name(image, topic.name)
    _check_configs(image, topic, clustered=surroundings.config.decides_for_cluster)
    topic_id = surroundings.new_id()
    placed = new_partitions(image, topic_id, _replicas(image, topic, surroundings))
    settings = (
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=key, value=value)
        for key, value in topic.configs.items()
    )
    return Decision(
        records=(TopicRecord(name=topic.name, topic_id=topic_id), *settings, *placed),
        reply=TopicImage(name=topic.name, topic_id=topic_id, partitions=tuple(map(placement, placed))),
    )


def _check_created(created: Mapping[str, str], name: str) -> None:
    """Refuse a name that an earlier topic of the request has, or has in metrics."""
    other = created.get(metric_name(name) or name)
    if other == name:
        raise _exists(name)
    if other is not None:
        raise _collides(name, other)


def _exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _collides(name: str, other: str) -> KafkaError:
    text = f"Topic '{name}' collides with existing topic: {other}"
    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)


def _check_new_name(image: ClusterImage, name: str) -> None:
    check_name(name)
    if name == TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in image.topics:
        raise _exists(name)
    shown = metric_name(name)
    if shown is not None and (other := image.metric_names.get(shown)) is not None:
        raise _collides(name, other)


def _check_configs(image: ClusterImage, topic: NewTopic, *, clustered: bool) -> None:
    configs = topic.configs
    if empty := [key for key, value in configs.items() if value is None]:
        text = f"Null value not supported for topic configs: {', '.join(empty)}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    try:
        check_levels(image.features, configs)
        check_not_fixed(topic.name, configs)
        if clustered:
            check_not_throttled(configs)
        parse_topic_configs(configs)
    except ConfigError as problem:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(problem)) from None


def _replicas(
    image: ClusterImage, topic: NewTopic, surroundings: Surroundings
) -> Sequence[tuple[int, tuple[int, ...]]]:
    if topic.assignments:
        _check_assignments(image, topic)
        return sorted(topic.assignments)
    config, factor, count = surroundings.config, topic.replication_factor, topic.partitions
    factor = config.get("default.replication.factor") if factor == DEFAULT else factor
    count = config.get("num.partitions") if count == DEFAULT else count
    if factor < 1:
        text = "Replication factor must be larger than 0, or -1 to use the default value."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    _check_count(count)
    return list(enumerate(place(image, count, factor, surroundings.new_id)))


def _check_assignments(image: ClusterImage, topic: NewTopic) -> None:
    begun = "A manual partition assignment was specified, but"
    if topic.replication_factor != DEFAULT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{begun} replication factor was not set to -1.")
    if topic.partitions != DEFAULT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{begun} numPartitions was not set to -1.")
    partitions: set[int] = set()
    factor = None
    for partition, replicas in topic.assignments:
        if partition in partitions:
            text = f"Found multiple manual partition assignments for partition {partition}"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        partitions.add(partition)
        check_replicas(image, replicas, factor)
        factor = len(replicas)
    if partitions != set(range(len(partitions))):
        text = "partitions should be a consecutive 0-based integer sequence"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCount:
    """A topic's new number of partitions, with the caller's replicas."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitions:
    """Add partitions to topics independently; reply each one's id or error."""

    topics: tuple[PartitionCount, ...]
    validate_only: bool = False

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[tuple[UUID | KafkaError, ...]]:
        def growth(topic: PartitionCount) -> Callable[[ClusterImage], Decision[UUID]]:
            return lambda newest: grow(newest, topic, surroundings)

        return only_checked(several(image, map(growth, self.topics)), validate_only=self.validate_only)


def grow(image: ClusterImage, growth: PartitionCount, surroundings: Surroundings) -> Decision[UUID]:
    """Add partitions to a topic, with the replication factor of its first one.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT or INVALID_REQUEST.
    """
    if growth.name == OFFSETS_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "growing the offsets topic would move groups to other partitions")
    if growth.name == TRANSACTIONS_TOPIC:
        text = "growing the topic of transactions would move transactional ids to other partitions"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if growth.name == SHARE_STATE_TOPIC:
        text = "growing the topic of share groups' state would move share partitions to other partitions"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    topic = image.topics.get(growth.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    have = len(topic.partitions)
    if growth.count == have:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if growth.count < have:
        text = f"The topic {growth.name} currently has {have} partition(s); {growth.count} would not be an increase."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
    _check_count(growth.count)
    more, factor = growth.count - have, len(topic.partitions[0].replicas)
    if growth.assignments is None:
        chosen = place(image, more, factor, surroundings.new_id)
    else:
        chosen = list(growth.assignments)
        if len(chosen) != more:
            text = (
                f"Attempted to add {more} additional partition(s), but only {len(chosen)} assignment(s) were specified."
            )
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        for replicas in chosen:
            check_replicas(image, replicas, factor)
    records = new_partitions(image, topic.topic_id, enumerate(chosen, have))
    return Decision(records=tuple(records), reply=topic.topic_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopics:
    """Delete topics by name or id independently; reply each one's name and id, or error."""

    topics: tuple[str | UUID, ...]

    def decide(
        self, image: ClusterImage, surroundings: Surroundings
    ) -> Decision[tuple[tuple[str, UUID] | KafkaError, ...]]:
        def deletion(topic: str | UUID) -> Callable[[ClusterImage], Decision[tuple[str, UUID]]]:
            return lambda newest: delete(newest, topic)

        return several(image, map(deletion, self.topics))


def delete(image: ClusterImage, topic: str | UUID) -> Decision[tuple[str, UUID]]:
    """Delete one topic.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, or INVALID_REQUEST for topics of transactions and
            share groups' state.
    """
    name = image.names.get(topic) if isinstance(topic, UUID) else topic
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    existing = image.topics.get(name)
    if existing is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    if name == TRANSACTIONS_TOPIC:
        text = f"{name} is the broker's own: without it open transactions would never end"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if name == SHARE_STATE_TOPIC:
        text = f"{name} is the broker's own: without it share groups would get again what they are done with"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    return Decision(records=(RemoveTopicRecord(topic_id=existing.topic_id),), reply=(name, existing.topic_id))


def _check_count(partitions: int) -> None:
    if partitions < 1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, _NOT_POSITIVE)
    if partitions > PARTITIONS_PER_TOPIC_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions are too many, a topic has at most {PARTITIONS_PER_TOPIC_MAX}",
        )
