"""Commands on the settings of topics, groups and brokers.

Here: replacing all settings, and changing single ones (KIP-339).
Not here: which settings of brokers are dynamic (`kernel.dynamic_configs`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Protocol

from busway_bus.controller.controller import Surroundings, only_checked, several
from busway_bus.controller.topics import check_name
from busway_bus.kernel.broker_configs import BROKER_CONFIGS
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.config_def import ConfigError, ConfigKey, ConfigType
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.dynamic_configs import CLUSTER_KEY
from busway_bus.kernel.group_configs import GROUP_CONFIGS, check_group_configs
from busway_bus.kernel.limits import CONFIG_VALUE_BYTES_MAX
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS, check_not_fixed, check_not_throttled, parse_topic_configs
from busway_bus.metadata.features import check_levels, has_elr
from busway_bus.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, ClusterImage
from busway_bus.metadata.records import ClearElrRecord, ConfigRecord
from busway_protocol.errors import ErrorCode, KafkaError


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Update = tuple[str, int, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigs:
    """Change settings, each resource atomically; reply each one's error, or None.

    Attributes:
        kind: TOPIC_RESOURCE, GROUP_RESOURCE or BROKER_RESOURCE; the name of the cluster's default is empty.
        incremental: whether unnamed settings stay, or return to their defaults.
    """

    kind: int
    updates: tuple[tuple[str, tuple[Update, ...]], ...]
    incremental: bool
    validate_only: bool = False

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[tuple[KafkaError | None, ...]]:
        kind = _kind(self.kind, surroundings.config)

        def alteration(resource: str, updates: Sequence[Update]) -> Callable[[ClusterImage], Decision[None]]:
            if self.incremental:
                return lambda newest: _change(kind, newest, resource, updates)
            values = {name: value or "" for name, _, value in updates}
            return lambda newest: _replace_all(kind, newest, resource, values)

        alterations = (alteration(resource, updates) for resource, updates in self.updates)
        return only_checked(several(image, alterations), validate_only=self.validate_only)


def check_request(updates: Sequence[Update]) -> None:
    """Check changes: unique names, and a value unless deleted.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    names = [name for name, _, _ in updates]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if empty := [name for name, operation, value in updates if value is None and operation != ConfigOperation.DELETE]:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(empty)}")


class _Kind(Protocol):
    """A kind of resource with settings.

    Attributes:
        refusal: error code of a refused setting.
    """

    resource: int
    refusal: ErrorCode
    keys: Mapping[str, ConfigKey]

    def check(self, image: ClusterImage, name: str) -> None:
        """Refuse a resource that cannot have settings.

        Raises:
            KafkaError: with the reason.
        """

    def current(self, image: ClusterImage, name: str) -> Mapping[str, str]: ...

    def check_changes(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Refuse changes of fixed settings; a value of None removes one.

        Raises:
            ConfigError: with the reason.
            KafkaError: with the reason, if its code differs from `refusal`.
        """

    def check_values(self, name: str, configs: Mapping[str, str | None]) -> None:
        """Refuse invalid settings and combinations.

        Raises:
            ConfigError: with the reason.
        """


class _Topics:
    resource = TOPIC_RESOURCE
    refusal = ErrorCode.INVALID_CONFIG
    keys = TOPIC_CONFIGS

    def __init__(self, config: BrokerConfig) -> None:
        self._clustered = config.decides_for_cluster

    def check(self, image: ClusterImage, name: str) -> None:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_name(name)
        if name not in image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")

    def current(self, image: ClusterImage, name: str) -> Mapping[str, str]:
        return image.topic_configs(name)

    def check_changes(self, name: str, changes: Mapping[str, str | None]) -> None:
        check_not_fixed(name, (key for key, value in changes.items() if value is not None))
        if self._clustered:
            check_not_throttled(changes)

    def check_values(self, name: str, configs: Mapping[str, str | None]) -> None:
        parse_topic_configs(configs)


class _Groups:
    resource = GROUP_RESOURCE
    refusal = ErrorCode.INVALID_CONFIG
    keys = GROUP_CONFIGS

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def check(self, image: ClusterImage, name: str) -> None:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")

    def current(self, image: ClusterImage, name: str) -> Mapping[str, str]:
        return image.group_configs(name)

    def check_changes(self, name: str, changes: Mapping[str, str | None]) -> None:
        pass

    def check_values(self, name: str, configs: Mapping[str, str | None]) -> None:
        check_group_configs(self._config, configs)


class _Brokers:
    """Brokers, and their common default, named ""."""

    resource = BROKER_RESOURCE
    refusal = ErrorCode.INVALID_REQUEST  # as Kafka's brokers, which check their settings themselves
    keys = BROKER_CONFIGS

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def check(self, image: ClusterImage, name: str) -> None:
        pass

    def current(self, image: ClusterImage, name: str) -> Mapping[str, str]:
        return image.broker_configs(name) if name else self._config.dynamic.defaults(image.broker_configs(name))

    def check_changes(self, name: str, changes: Mapping[str, str | None]) -> None:
        if CLUSTER_KEY not in changes:
            return
        if name:
            text = f"Broker-level {CLUSTER_KEY} cannot be altered while ELR is enabled."
        elif changes[CLUSTER_KEY] is None:
            text = f"Cluster-level {CLUSTER_KEY} cannot be removed while ELR is enabled."
        else:
            return
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)

    def check_values(self, name: str, configs: Mapping[str, str | None]) -> None:
        values = {key: value for key, value in configs.items() if value is not None}
        self._config.dynamic.check(values, per_broker=bool(name))


def _kind(resource: int, config: BrokerConfig) -> _Kind:
    if resource == BROKER_RESOURCE:
        return _Brokers(config)
    return _Groups(config) if resource == GROUP_RESOURCE else _Topics(config)


def _replace_all(kind: _Kind, image: ClusterImage, resource: str, configs: Mapping[str, str]) -> Decision[None]:
    kind.check(image, resource)
    gone = {name: None for name in kind.current(image, resource) if name not in configs}
    _check_values(kind, image, resource, configs)
    kind.check_changes(resource, gone)
    return _decision(kind, image, resource, {**gone, **configs})


def _change(kind: _Kind, image: ClusterImage, resource: str, operations: Sequence[Update]) -> Decision[None]:
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
    return _decision(kind, image, resource, changes)


def _edit_list(kind: _Kind, name: str, operation: ConfigOperation, current: Mapping[str, str], value: str) -> str:
    key = kind.keys.get(name)
    if key is None or key.type is not ConfigType.LIST:
        text = f"Can't {operation.name} to key {name} because its type is not LIST."
        if kind.resource == BROKER_RESOURCE:
            text = f"Config value {operation.name.lower()} is not allowed for config key: {name}"
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
        kind.check_changes(resource, changes)
        kind.check_values(resource, configs)
    except ConfigError as problem:
        raise KafkaError(kind.refusal, str(problem)) from None


def _decision(kind: _Kind, image: ClusterImage, resource: str, changes: Mapping[str, str | None]) -> Decision[None]:
    records: list[ConfigRecord | ClearElrRecord] = [
        ConfigRecord(resource_type=kind.resource, resource_name=resource, name=name, value=value)
        for name, value in changes.items()
    ]
    if CLUSTER_KEY in changes and has_elr(image.features):
        # Replicas are eligible by the old minimum: what was committed with a lower one they may lack.
        records.append(ClearElrRecord(topic_name=resource if kind.resource == TOPIC_RESOURCE else ""))
    return Decision(records=tuple(records), reply=None)
