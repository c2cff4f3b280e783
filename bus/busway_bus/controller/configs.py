"""Commands on the settings of topics and groups.

What lives here: replacing all settings of one and changing single ones (KIP-339), as decisions. Settings of brokers come
from their properties file and are read-only on one node.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Protocol

from busway_bus.controller.controller import Surroundings, only_checked, several
from busway_bus.controller.topics import check_name
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.config_def import ConfigError, ConfigKey, ConfigType
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.group_configs import GROUP_CONFIGS, check_group_configs
from busway_bus.kernel.limits import CONFIG_VALUE_BYTES_MAX
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS, check_not_fixed, parse_topic_configs
from busway_bus.metadata.features import check_levels
from busway_bus.metadata.image import GROUP_RESOURCE, TOPIC_RESOURCE, ClusterImage
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
class AlterConfigs:
    """Change the settings of topics or of groups, each whole or not at all; the reply has None for each that is changed, or why not.

    Attributes:
        kind: TOPIC_RESOURCE or GROUP_RESOURCE.
        updates: of each of them, by its name.
        incremental: whether settings that are not named stay, or go back to their defaults.
    """

    kind: int
    updates: tuple[tuple[str, tuple[Update, ...]], ...]
    incremental: bool
    validate_only: bool = False

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[tuple[KafkaError | None, ...]]:
        """One decision for all of them."""

        kind: _Kind = _Groups(surroundings.config) if self.kind == GROUP_RESOURCE else _Topics()

        def alteration(resource: str, updates: Sequence[Update]) -> Callable[[ClusterImage], Decision[None]]:
            if self.incremental:
                return lambda newest: _change(kind, newest, resource, updates)
            values = {name: value or "" for name, _, value in updates}
            return lambda newest: _replace_all(kind, newest, resource, values)

        alterations = (alteration(resource, updates) for resource, updates in self.updates)
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


class _Kind(Protocol):
    """What has settings."""

    resource: int
    keys: Mapping[str, ConfigKey]

    def check(self, image: ClusterImage, name: str) -> None:
        """Refuse one that can have none.

        Raises:
            KafkaError: why.
        """

    def current(self, image: ClusterImage, name: str) -> Mapping[str, str]:
        """What one has of its own."""
        ...

    def check_set(self, name: str, settings: Iterable[str]) -> None:
        """Refuse to set these on one that does not let them be set.

        Raises:
            ConfigError: why.
        """

    def check_values(self, configs: Mapping[str, str | None]) -> None:
        """Refuse settings that are not allowed, or not together.

        Raises:
            ConfigError: why.
        """


class _Topics:
    """Topics."""

    resource = TOPIC_RESOURCE
    keys = TOPIC_CONFIGS

    def check(self, image: ClusterImage, name: str) -> None:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_name(name)
        if name not in image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")

    def current(self, image: ClusterImage, name: str) -> Mapping[str, str]:
        return image.topic_configs(name)

    def check_set(self, name: str, settings: Iterable[str]) -> None:
        check_not_fixed(name, settings)

    def check_values(self, configs: Mapping[str, str | None]) -> None:
        parse_topic_configs(configs)


class _Groups:
    """Groups, which need not be there yet."""

    resource = GROUP_RESOURCE
    keys = GROUP_CONFIGS

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def check(self, image: ClusterImage, name: str) -> None:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")

    def current(self, image: ClusterImage, name: str) -> Mapping[str, str]:
        return image.group_configs(name)

    def check_set(self, name: str, settings: Iterable[str]) -> None:
        pass

    def check_values(self, configs: Mapping[str, str | None]) -> None:
        check_group_configs(self._config, configs)


def _replace_all(kind: _Kind, image: ClusterImage, resource: str, configs: Mapping[str, str]) -> Decision[None]:
    """Make `configs` all the settings that something has of its own.

    Raises:
        KafkaError: it is not there, may have none, or INVALID_CONFIG.
    """
    kind.check(image, resource)
    _check_values(kind, image, resource, configs)
    gone = {name: None for name in kind.current(image, resource) if name not in configs}
    return _decision(kind, resource, {**gone, **configs})


def _change(kind: _Kind, image: ClusterImage, resource: str, operations: Sequence[Update]) -> Decision[None]:
    """Carry out (name, operation, value) on the settings of something; what is deleted and not set changes nothing.

    Raises:
        KafkaError: it is not there, may have none, INVALID_CONFIG or INVALID_REQUEST.
    """
    kind.check(image, resource)
    current = kind.current(image, resource)
    changes: dict[str, str | None] = {}
    for name, operation, value in operations:
        if operation == ConfigOperation.DELETE:
            if name in current:
                changes[name] = None
        elif operation == ConfigOperation.SET:
            changes[name] = value
        elif operation in {ConfigOperation.APPEND, ConfigOperation.SUBTRACT}:
            changes[name] = _edit_list(kind, name, ConfigOperation(operation), current, value or "")
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: operation {operation} is not known")
    kept = {name: value for name, value in current.items() if name not in changes}
    _check_values(kind, image, resource, changes, kept)
    return _decision(kind, resource, changes)


def _edit_list(kind: _Kind, name: str, operation: ConfigOperation, current: Mapping[str, str], value: str) -> str:
    key = kind.keys.get(name)
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


def _check_values(
    kind: _Kind,
    image: ClusterImage,
    resource: str,
    changes: Mapping[str, str | None],
    kept: Mapping[str, str] = MappingProxyType({}),
) -> None:
    configs = {**kept, **changes}
    if any(len((value or "").encode()) > CONFIG_VALUE_BYTES_MAX for value in configs.values()):
        text = f"The configuration value cannot be added because it exceeds the maximum value size of {CONFIG_VALUE_BYTES_MAX} bytes."
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    try:
        check_levels(image.features, configs)
        kind.check_set(resource, (name for name, value in changes.items() if value is not None))
        kind.check_values(configs)
    except ConfigError as problem:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(problem)) from None


def _decision(kind: _Kind, resource: str, changes: Mapping[str, str | None]) -> Decision[None]:
    records = tuple(
        ConfigRecord(resource_type=kind.resource, resource_name=resource, name=name, value=value)
        for name, value in changes.items()
    )
    return Decision(records=records, reply=None)
