"""Commands on the settings of topics.

What lives here: replacing all settings of a topic and changing single ones (KIP-339), as decisions. Settings of brokers come
from their properties file and are read-only on one node.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum

from busway_bus.kernel.config_def import ConfigError, ConfigType
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS, parse_topic_configs
from busway_bus.metadata.image import TOPIC_RESOURCE, ClusterImage
from busway_bus.metadata.records import ConfigRecord
from busway_protocol.errors import ErrorCode, KafkaError


class Operation(IntEnum):
    """What to do with one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def replace_all(image: ClusterImage, topic: str, wanted: Mapping[str, str | None]) -> Decision[None]:
    """Make `wanted` all the settings that a topic has of its own.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION or INVALID_CONFIG.
    """
    _check(image, topic, wanted)
    gone = {name: None for name in image.topic_configs(topic) if name not in wanted}
    return _changes(topic, {**gone, **wanted})


def change(image: ClusterImage, topic: str, operations: Sequence[tuple[str, int, str | None]]) -> Decision[None]:
    """Carry out (name, operation, value) on a topic's settings.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG or INVALID_REQUEST.
    """
    current = image.topic_configs(topic)
    wanted: dict[str, str | None] = {}
    for name, operation, value in operations:
        if name in wanted:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is changed twice in one request")
        if operation == Operation.DELETE:
            wanted[name] = None
        elif operation == Operation.SET:
            if value is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: to set it, give a value")
            wanted[name] = value
        elif operation in {Operation.APPEND, Operation.SUBTRACT}:
            wanted[name] = _edit_list(name, operation, current, value or "")
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: operation {operation} is not known")
    _check(image, topic, wanted)
    return _changes(topic, wanted)


def _edit_list(name: str, operation: int, current: Mapping[str, str], value: str) -> str:
    key = TOPIC_CONFIGS.get(name)
    if key is None or key.type is not ConfigType.LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is no list, nothing can be appended or taken away")
    default = key.default
    assert isinstance(default, list)
    items = [item for item in current[name].split(",") if item] if name in current else list(default)
    edited = [item.strip() for item in value.split(",") if item.strip()]
    if operation == Operation.APPEND:
        items += [item for item in edited if item not in items]
    else:
        items = [item for item in items if item not in edited]
    return ",".join(items)


def _check(image: ClusterImage, topic: str, wanted: Mapping[str, str | None]) -> None:
    if topic not in image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} does not exist")
    try:
        parse_topic_configs(wanted)
    except ConfigError as problem:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(problem)) from None


def _changes(topic: str, wanted: Mapping[str, str | None]) -> Decision[None]:
    records = tuple(
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic, name=name, value=value)
        for name, value in wanted.items()
    )
    return Decision(records=records, reply=None)
