"""Commands on the settings of topics.

What lives here: replacing all settings of a topic and changing single ones (KIP-339), as decisions. Settings of brokers come
from their properties file and are read-only on one node.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from busway_bus.controller.controller import Surroundings, only_checked, several
from busway_bus.controller.topics import check_name
from busway_bus.kernel.config_def import ConfigError, ConfigType
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS, parse_topic_configs
from busway_bus.metadata.image import TOPIC_RESOURCE, ClusterImage
from busway_bus.metadata.records import ConfigRecord
from busway_protocol.errors import ErrorCode, KafkaError


class ConfigOperation(IntEnum):
    """What to do with one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Update = tuple[str, int, str | None]
"""Name, operation and value of one setting's change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTopicConfigs:
    """Change the settings of topics, each whole or not at all; the reply has None for each that is changed, or why not.

    Attributes:
        updates: of each topic.
        incremental: whether settings that are not named stay, or go back to their defaults.
    """

    updates: tuple[tuple[str, tuple[Update, ...]], ...]
    incremental: bool
    validate_only: bool = False

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[tuple[KafkaError | None, ...]]:
        """One decision for all of them."""

        def alteration(topic: str, updates: Sequence[Update]) -> Callable[[ClusterImage], Decision[None]]:
            if self.incremental:
                return lambda newest: change(newest, topic, updates)
            values = {name: value or "" for name, _, value in updates}
            return lambda newest: replace_all(newest, topic, values)

        alterations = (alteration(topic, updates) for topic, updates in self.updates)
        return only_checked(several(image, alterations), validate_only=self.validate_only)


def check_request(updates: Sequence[Update]) -> None:
    """Refuse changes that are none: (name, operation, value), each name once, with a value unless it is deleted.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    names = [name for name, _, _ in updates]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if empty := [name for name, operation, value in updates if value is None and operation != ConfigOperation.DELETE]:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(empty)}")


def replace_all(image: ClusterImage, topic: str, configs: Mapping[str, str]) -> Decision[None]:
    """Make `configs` all the settings that a topic has of its own.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION or INVALID_CONFIG.
    """
    _check_topic(image, topic)
    _check_values(configs)
    gone = {name: None for name in image.topic_configs(topic) if name not in configs}
    return _decision(topic, {**gone, **configs})


def change(image: ClusterImage, topic: str, operations: Sequence[Update]) -> Decision[None]:
    """Carry out (name, operation, value) on a topic's settings; what is deleted and not set changes nothing.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG or INVALID_REQUEST.
    """
    _check_topic(image, topic)
    current = image.topic_configs(topic)
    changes: dict[str, str | None] = {}
    for name, operation, value in operations:
        if operation == ConfigOperation.DELETE:
            if name in current:
                changes[name] = None
        elif operation == ConfigOperation.SET:
            changes[name] = value
        elif operation in {ConfigOperation.APPEND, ConfigOperation.SUBTRACT}:
            changes[name] = _edit_list(name, ConfigOperation(operation), current, value or "")
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: operation {operation} is not known")
    _check_values({**current, **changes})
    return _decision(topic, changes)


def _edit_list(name: str, operation: ConfigOperation, current: Mapping[str, str], value: str) -> str:
    key = TOPIC_CONFIGS.get(name)
    if key is None or key.type is not ConfigType.LIST:
        text = f"Can't {operation.name} to key {name} because its type is not LIST."
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    default = key.default
    assert isinstance(default, list)
    items = [item for item in current[name].split(",") if item] if name in current else list(default)
    edited = [item.strip() for item in value.split(",") if item.strip()]
    if operation == ConfigOperation.APPEND:
        items += [item for item in edited if item not in items]
    else:
        items = [item for item in items if item not in edited]
    return ",".join(items)


def _check_topic(image: ClusterImage, topic: str) -> None:
    if not topic:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_name(topic)
    if topic not in image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")


def _check_values(configs: Mapping[str, str | None]) -> None:
    try:
        parse_topic_configs(configs)
    except ConfigError as problem:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(problem)) from None


def _decision(topic: str, changes: Mapping[str, str | None]) -> Decision[None]:
    records = tuple(
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic, name=name, value=value)
        for name, value in changes.items()
    )
    return Decision(records=records, reply=None)
