"""Commands on topics: create, grow, delete.

What lives here: the rules for names, counts and placement on one node, as decisions. What does not: writing them down.
Names as Kafka's `Topic` checks them; a dot and an underscore are the same in metric names, so they collide.
"""

import re
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from busway_bus.kernel.config_def import ConfigError
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.limits import PARTITIONS_PER_TOPIC_MAX, TOPIC_NAME_CHARS_MAX
from busway_bus.kernel.topic_configs import parse_topic_configs
from busway_bus.metadata.delta import placement
from busway_bus.metadata.image import TOPIC_RESOURCE, ClusterImage, TopicImage
from busway_bus.metadata.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from busway_protocol.errors import ErrorCode, KafkaError

_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")


def check_name(name: str) -> None:
    """Refuse what is no topic name.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION.
    """
    problem = None
    if not name:
        problem = "a topic name cannot be empty"
    elif name in {".", ".."}:
        problem = 'a topic cannot be called "." or ".."'
    elif len(name) > TOPIC_NAME_CHARS_MAX:
        problem = f"a topic name has at most {TOPIC_NAME_CHARS_MAX} characters, this one has {len(name)}"
    elif not _NAME.match(name):
        problem = f"topic {name[:60]!r}: only ASCII letters, digits, '.', '_' and '-' are allowed in a name"
    if problem:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def create(
    image: ClusterImage,
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str | None],
    node_id: int,
    topic_id: UUID,
    directory_id: UUID,
) -> Decision[TopicImage]:
    """Create a topic on this node.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR or
            INVALID_CONFIG.
    """
    check_name(name)
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
    plain = name.replace(".", "_")
    for other in image.topics:
        if other.replace(".", "_") == plain:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} collides with {other}: '.' and '_' count as the same"
            )
    _check_count(partitions)
    if replication_factor != 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {replication_factor}, but there is 1 broker"
        )
    try:
        parse_topic_configs(configs)
    except ConfigError as problem:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(problem)) from None
    placed = _partitions(topic_id, 0, partitions, node_id, directory_id)
    records = [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=key, value=value)
            for key, value in configs.items()
            if value is not None
        ),
        *placed,
    ]
    return Decision(
        records=tuple(records),
        reply=TopicImage(name=name, topic_id=topic_id, partitions=tuple(map(placement, placed))),
    )


def grow(image: ClusterImage, name: str, *, partitions: int, node_id: int, directory_id: UUID) -> Decision[None]:
    """Give a topic more partitions.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION or INVALID_PARTITIONS.
    """
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
    have = len(topic.partitions)
    if partitions <= have:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"topic {name} has {have} partitions already, {partitions} is not more"
        )
    _check_count(partitions)
    records = _partitions(topic.topic_id, have, partitions, node_id, directory_id)
    return Decision(records=tuple(records), reply=None)


def delete(image: ClusterImage, name: str) -> Decision[None]:
    """Delete a topic.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
    """
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
    return Decision(records=(RemoveTopicRecord(topic_id=topic.topic_id),), reply=None)


def _check_count(partitions: int) -> None:
    if partitions < 1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"a topic needs at least 1 partition, not {partitions}")
    if partitions > PARTITIONS_PER_TOPIC_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions are too many, a topic has at most {PARTITIONS_PER_TOPIC_MAX}",
        )


def _partitions(topic_id: UUID, first: int, end: int, node_id: int, directory_id: UUID) -> list[PartitionRecord]:
    return [
        PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=[node_id],
            isr=[node_id],
            removing_replicas=[],
            adding_replicas=[],
            leader=node_id,
            leader_epoch=0,
            partition_epoch=0,
            directories=[directory_id],
        )
        for number in range(first, end)
    ]
