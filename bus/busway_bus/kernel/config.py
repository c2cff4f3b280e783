"""The settings of one node, parsed from Kafka's `server.properties` names.

Here: `BrokerConfig`, the precedence topic > broker > default, checks of several keys.
Not here: reading files or arguments (`run`, `busway.cli`), the keys (`broker_configs`, `topic_configs`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from busway_bus.kernel.broker_configs import BROKER_CONFIGS
from busway_bus.kernel.config_def import ConfigError, ConfigKey, ConfigValue, closest
from busway_bus.kernel.dynamic_configs import DynamicConfigs
from busway_bus.kernel.group_bounds import check_together
from busway_bus.kernel.inert_configs import REFUSED_PREFIXES
from busway_bus.kernel.listener_configs import EVERYWHERE, Endpoint, listeners_of, metrics_listener
from busway_bus.kernel.quorum_configs import (
    VoterAddress,
    check_roles,
    is_broker_alone,
    is_clustered,
    is_controller_alone,
    voters_of,
)
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS, parse_topic_configs

_MS_PER: Final[Mapping[str, int]] = {"minutes": 60_000, "hours": 3_600_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """All settings of a node, frozen at start except `dynamic` (KIP-226).

    Attributes:
        properties: what the operator set, typed, by Kafka's name.
        listeners: of the broker; none on a node that is a controller alone.
        controller_listeners: in the order of `controller.listener.names`; may be none on a broker.
        advertised: addresses for clients, of listeners of either kind.
        metrics_listener: where metrics are served; None serves none.
    """

    properties: Mapping[str, ConfigValue]
    listeners: tuple[Endpoint, ...]
    controller_listeners: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    metrics_listener: Endpoint | None = None
    dynamic: DynamicConfigs = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dynamic", DynamicConfigs(self.properties))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> "BrokerConfig":
        """Parse `server.properties`.

        ConfigError: a key is unknown, refused or nonsensical; the text has the remedy.
        """
        values: dict[str, ConfigValue] = {}
        for name, text in properties.items():
            values[name] = _key_of(name).parse(text)
        if "broker.id" in values and values.setdefault("node.id", values["broker.id"]) != values["broker.id"]:
            raise ConfigError("broker.id", "differs from node.id; remove broker.id")
        check_roles(values, int(str(values.get("node.id", BROKER_CONFIGS["node.id"].default))))
        check_together(lambda name: values.get(name, BROKER_CONFIGS[name].default))
        for name in ("log.dir", "log.dirs"):
            directories = values.get(name)
            if isinstance(directories, list) and len(directories) != 1:
                raise ConfigError(name, f"exactly one data directory is served, {len(directories)} are given")
        listeners = listeners_of(values)
        return cls(
            properties=values,
            listeners=listeners.broker,
            controller_listeners=listeners.controller,
            advertised=listeners.advertised,
            metrics_listener=metrics_listener(values),
        )

    @classmethod
    def defaults(cls, **overrides: str) -> "BrokerConfig":
        """Return Kafka's defaults with overrides: `defaults(log_dirs=".busway")`."""
        return cls.from_properties({name.replace("_", "."): text for name, text in overrides.items()})

    def get(self, name: str) -> Any:
        values = self.dynamic.values
        if name in values:
            return values[name]
        return BROKER_CONFIGS[name].default

    @property
    def node_id(self) -> int:
        return int(self.get("node.id"))

    @property
    def data_dir(self) -> str:
        return str((self.get("log.dirs") or self.get("log.dir"))[0])

    @property
    def is_controller_alone(self) -> bool:
        return is_controller_alone(self.properties)

    @property
    def is_broker_alone(self) -> bool:
        return is_broker_alone(self.properties)

    @property
    def is_clustered(self) -> bool:
        """See `quorum_configs.is_clustered`."""
        return is_clustered(self.properties)

    @property
    def decides_for_cluster(self) -> bool:
        """Whether a controller with these settings has other nodes than itself."""
        return is_clustered(self.properties) or is_controller_alone(self.properties)

    @property
    def shares_cluster_id(self) -> bool:
        """Whether other nodes have the cluster's id too, so that this one cannot generate it."""
        return len(self.voters) > 1 or self.is_broker_alone

    @property
    def voters(self) -> Mapping[int, VoterAddress]:
        return voters_of(self.properties)

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener between brokers: `inter.broker.listener.name`, else PLAINTEXT, else the first."""
        names = [listener.name for listener in self.listeners]
        named = str(self.get("inter.broker.listener.name") or "").upper()
        return named or ("PLAINTEXT" if "PLAINTEXT" in names or not names else names[0])

    def advertised_by(self, listener: Endpoint, *, port: int) -> Endpoint:
        """Return a listener's address for clients; `port` is the bound port."""
        endpoint = next((endpoint for endpoint in self.advertised if endpoint.name == listener.name), listener)
        # A client cannot connect to "everywhere".
        host = "127.0.0.1" if not endpoint.host or endpoint.host in EVERYWHERE else endpoint.host
        return Endpoint(name=endpoint.name, host=host, port=endpoint.port or port)

    def topic_default(self, name: str) -> ConfigValue:
        for synonym in TOPIC_CONFIGS[name].synonyms:
            value = self.dynamic.values.get(synonym)
            if value is None:
                continue
            unit = synonym.rsplit(".", 1)[-1]
            if unit in _MS_PER and isinstance(value, int):
                return value * _MS_PER[unit] if value >= 0 else -1
            return value
        return TOPIC_CONFIGS[name].default

    def topic_config(self, overrides: Mapping[str, str | None]) -> dict[str, ConfigValue]:
        """Return the values in force for a topic.

        ConfigError: an override is unknown or not allowed.
        """
        values = {name: self.topic_default(name) for name, key in TOPIC_CONFIGS.items() if key.default is not None}
        values.update(parse_topic_configs(overrides))
        return values


def _key_of(name: str) -> ConfigKey:
    key = BROKER_CONFIGS.get(name)
    if key is not None:
        return key
    for prefix, reason in REFUSED_PREFIXES.items():
        if name.startswith(prefix):
            raise ConfigError(name, f"{reason}. Remove it to start")
    hint = closest(name, BROKER_CONFIGS)
    raise ConfigError(name, "unknown property" + (f", did you mean {hint}?" if hint else ". Remove it to start"))
