"""The settings of one node, parsed from Kafka's `server.properties` names.

Here: `BrokerConfig`, the precedence topic > broker > default, checks of several keys.
Not here: reading files or arguments (`run`, `busway.cli`), the keys (`broker_configs`, `topic_configs`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final

from busway_bus.kernel.broker_configs import BROKER_CONFIGS
from busway_bus.kernel.config_def import ConfigError, ConfigKey, ConfigValue, closest
from busway_bus.kernel.dynamic_configs import DynamicConfigs
from busway_bus.kernel.group_bounds import check_together
from busway_bus.kernel.inert_configs import REFUSED_PREFIXES
from busway_bus.kernel.quorum_configs import VoterAddress, check_roles, is_controller_alone, voters_of
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS, parse_topic_configs

_EVERYWHERE: Final = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 - named to be refused
_MS_PER: Final[Mapping[str, int]] = {"minutes": 60_000, "hours": 3_600_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One listener. An empty host is every interface; port 0 takes a free one."""

    name: str
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return self.host == "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """All settings of a node, frozen at start except `dynamic` (KIP-226).

    `properties` has what the operator set, typed, by Kafka's name.
    """

    properties: Mapping[str, ConfigValue]
    listeners: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
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
        listeners = _endpoints(values, "listeners")
        advertised = _endpoints(values, "advertised.listeners") or listeners
        _check_advertised(listeners, advertised, explicit="advertised.listeners" in values)
        for endpoint in listeners:
            if not endpoint.loopback and values.get("busway.insecure") is not True:
                shown = endpoint.host or "every interface"
                raise ConfigError(
                    "listeners",
                    f"{endpoint.name} would listen on {shown} with neither authentication nor encryption; bind to "
                    f"127.0.0.1, or say busway.insecure=true (--insecure) if the network is trusted",
                )
        return cls(properties=values, listeners=listeners, advertised=advertised)

    @classmethod
    def defaults(cls, **overrides: str) -> "BrokerConfig":
        """Return Kafka's defaults with overrides: `defaults(log_dirs=".busway")`."""
        return cls.from_properties({name.replace("_", "."): text for name, text in overrides.items()})

    def get(self, name: str) -> Any:
        """Return a broker key's typed value in force."""
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
    def voters(self) -> Mapping[int, VoterAddress]:
        return voters_of(self.properties)

    def advertised_by(self, listener: Endpoint, *, port: int) -> Endpoint:
        """Return a listener's address for clients; `port` is the bound port."""
        endpoint = next(endpoint for endpoint in self.advertised if endpoint.name == listener.name)
        # A client cannot connect to "everywhere".
        host = "127.0.0.1" if not endpoint.host or endpoint.host in _EVERYWHERE else endpoint.host
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


def _check_advertised(listeners: tuple[Endpoint, ...], advertised: tuple[Endpoint, ...], *, explicit: bool) -> None:
    for key, endpoints in (("listeners", listeners), ("advertised.listeners", advertised)):
        if len({endpoint.name for endpoint in endpoints}) != len(endpoints):
            raise ConfigError(key, "two listeners have the same name; give each its own")
    if not explicit:
        return
    if any(endpoint.host in _EVERYWHERE for endpoint in advertised):
        raise ConfigError(
            "advertised.listeners", "clients cannot connect to every address; name the one they reach this broker by"
        )
    advertised_names, names = [endpoint.name for endpoint in advertised], [endpoint.name for endpoint in listeners]
    if surplus := sorted(set(advertised_names) - set(names)):
        raise ConfigError("advertised.listeners", f"{', '.join(surplus)} is no listener; there is {', '.join(names)}")
    if missing := sorted(set(names) - set(advertised_names)):
        raise ConfigError(
            "advertised.listeners",
            f"{', '.join(missing)} is missing: a client of that listener could not find this node",
        )


def _protocols(values: Mapping[str, ConfigValue]) -> dict[str, str]:
    name = "listener.security.protocol.map"
    protocols = {}
    for pair in str(values.get(name) or "").split(","):
        listener, colon, protocol = pair.strip().partition(":")
        if pair.strip() and not (listener and colon and protocol):
            raise ConfigError(name, f"{pair.strip()!r} is not NAME:PROTOCOL")
        protocols[listener.upper()] = protocol.upper()
    return protocols


def _endpoints(values: Mapping[str, ConfigValue], name: str) -> tuple[Endpoint, ...]:
    texts = values.get(name) or (BROKER_CONFIGS[name].default if name == "listeners" else None)
    if not isinstance(texts, list):
        return ()
    controllers = values.get("controller.listener.names")
    hidden = {str(controller).upper() for controller in controllers} if isinstance(controllers, list) else set()
    alone = is_controller_alone(values)
    protocols = {
        **({} if "listener.security.protocol.map" in values else dict.fromkeys(hidden, "PLAINTEXT")),
        **_protocols(values),
    }
    endpoints = []
    for text in texts:
        listener, separator, address = text.partition("://")
        listener = listener.upper()  # as Kafka does, so that names in different keys meet
        host, colon, port = address.rpartition(":")
        if not separator or not colon or not port.isdigit() or int(port) > 65_535:
            raise ConfigError(name, f"{text!r} is not NAME://host:port")
        if alone and values.get(name) and name == "listeners" and listener not in hidden:
            raise ConfigError(
                name, f"a controller opens the listeners of controller.listener.names alone; remove {text!r}"
            )
        if (listener in hidden) is not alone:
            continue
        if protocols.get(listener, listener) != "PLAINTEXT":
            raise ConfigError(
                name,
                f"{text!r}: only PLAINTEXT is served; set listener.security.protocol.map={listener}:PLAINTEXT",
            )
        endpoints.append(Endpoint(name=listener, host=host.strip("[]"), port=int(port)))
    if not endpoints and alone and name == "listeners":
        raise ConfigError(
            name, f"none of controller.listener.names is there; name one, such as {min(hidden)}://127.0.0.1:9093"
        )
    if not endpoints and not alone:
        raise ConfigError(name, "no broker listener is left; name one, such as PLAINTEXT://127.0.0.1:9092")
    return tuple(endpoints)
