"""The listeners of a node, for clients of the broker and of the controller.

Here: `Endpoint`; `listeners`, `advertised.listeners`, `controller.listener.names` and the checks of them.
Not here: the keys (`broker_configs`), binding (`server.listener`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, NamedTuple

from busway_bus.kernel.broker_configs import BROKER_CONFIGS
from busway_bus.kernel.config_def import ConfigError, ConfigValue
from busway_bus.kernel.quorum_configs import is_broker_alone, is_controller_alone

EVERYWHERE: Final = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 - named to be refused
_LISTENERS: Final = "listeners"
_ADVERTISED: Final = "advertised.listeners"
_CONTROLLERS: Final = "controller.listener.names"
_METRICS: Final = "metrics.listener"
_BETWEEN_BROKERS: Final = "inter.broker.listener.name"
_PROTOCOLS: Final = "listener.security.protocol.map"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One listener. An empty host is every interface; port 0 takes a free one.

    Attributes:
        security_protocol: Kafka's number; 0 is PLAINTEXT, which this broker's listeners have.
    """

    name: str
    host: str
    port: int
    security_protocol: int = 0

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


class NodeListeners(NamedTuple):
    """The listeners of one node.

    Attributes:
        broker, controller, advertised: see `BrokerConfig`.
    """

    broker: tuple[Endpoint, ...]
    controller: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]


def listeners_of(values: Mapping[str, ConfigValue]) -> NodeListeners:
    """Parse and check the listeners, as `KafkaConfig` does.

    ConfigError: one cannot be served, or would be open to a network unprotected.
    """
    names = _controller_names(values)
    opened = _endpoints(values, _LISTENERS, names)
    broker = tuple(endpoint for endpoint in opened if endpoint.name not in names)
    by_name = {endpoint.name: endpoint for endpoint in opened}
    controller = tuple(by_name[name] for name in names if name in by_name)
    if is_controller_alone(values):
        _check_controller_alone(values, broker, controller, names)
    elif not broker:
        raise ConfigError(_LISTENERS, "no broker listener is left; name one, such as PLAINTEXT://127.0.0.1:9092")
    # A broker alone names those of the controllers, as Kafka requires.
    if missing := [name for name in names if name not in by_name and not is_broker_alone(values)]:
        raise ConfigError(
            _CONTROLLERS,
            f"{', '.join(missing)} is not in listeners; add it there, such as {missing[0]}://127.0.0.1:9093",
        )
    _check_between_brokers(values, broker, names)
    advertised = _endpoints(values, _ADVERTISED, names)
    _check_advertised(opened, broker, advertised)
    for endpoint in opened:
        if not endpoint.loopback and values.get("busway.insecure") is not True:
            shown = endpoint.host or "every interface"
            raise ConfigError(
                _LISTENERS,
                f"{endpoint.name} would listen on {shown} with neither authentication nor encryption; bind to "
                f"127.0.0.1, or say busway.insecure=true (--insecure) if the network is trusted",
            )
    return NodeListeners(broker, controller, advertised)


def metrics_listener(values: Mapping[str, ConfigValue]) -> Endpoint | None:
    """Parse and check `metrics.listener`.

    ConfigError: it is no address, would be open to a network without protection, or is a controller's.
    """
    text = str(values.get(_METRICS) or "")
    if not text:
        return None
    if is_controller_alone(values):
        raise ConfigError(_METRICS, "a controller that is no broker has no metrics; remove it")
    host, colon, port = text.rpartition(":")
    if not host or not colon or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(_METRICS, f"{text!r} is not host:port, such as 127.0.0.1:9404")
    endpoint = Endpoint(name=_METRICS, host=host.strip("[]"), port=int(port))
    if not endpoint.loopback and values.get("busway.insecure") is not True:
        raise ConfigError(
            _METRICS,
            f"{text} would be open to the network without authentication; bind to 127.0.0.1, or say "
            "busway.insecure=true (--insecure) if the network is trusted",
        )
    return endpoint


def _controller_names(values: Mapping[str, ConfigValue]) -> tuple[str, ...]:
    names = values.get(_CONTROLLERS)
    return tuple(dict.fromkeys(str(name).upper() for name in names)) if isinstance(names, list) else ()


def _check_controller_alone(
    values: Mapping[str, ConfigValue],
    broker: tuple[Endpoint, ...],
    controller: tuple[Endpoint, ...],
    names: tuple[str, ...],
) -> None:
    if values.get(_LISTENERS) and broker:
        surplus = f"{broker[0].name}://{broker[0].address}"
        raise ConfigError(_LISTENERS, f"a controller opens the listeners of {_CONTROLLERS} alone; remove {surplus!r}")
    if not controller:
        raise ConfigError(_LISTENERS, f"none of {_CONTROLLERS} is there; name one, such as {names[0]}://127.0.0.1:9093")


def _check_between_brokers(
    values: Mapping[str, ConfigValue], broker: tuple[Endpoint, ...], names: tuple[str, ...]
) -> None:
    name = str(values.get(_BETWEEN_BROKERS) or "").upper()
    if name in names:
        raise ConfigError(
            _BETWEEN_BROKERS, f"{name} is a listener of the controller ({_CONTROLLERS}); name one of the broker"
        )
    served = [endpoint.name for endpoint in broker]
    if name and served and name not in served:
        raise ConfigError(_BETWEEN_BROKERS, f"{name} is no listener; there is {', '.join(served)}")


def _check_advertised(
    opened: tuple[Endpoint, ...], broker: tuple[Endpoint, ...], advertised: tuple[Endpoint, ...]
) -> None:
    """Check that clients find the listeners; a controller's need not be advertised."""
    for key, endpoints in ((_LISTENERS, opened), (_ADVERTISED, advertised)):
        if len(set(_names(endpoints))) != len(endpoints):
            raise ConfigError(key, "two listeners have the same name; give each its own")
    if not advertised:
        return
    if any(endpoint.host in EVERYWHERE for endpoint in advertised):
        raise ConfigError(
            _ADVERTISED, "clients cannot connect to every address; name the one they reach this broker by"
        )
    if surplus := sorted(set(_names(advertised)) - set(_names(opened))):
        raise ConfigError(_ADVERTISED, f"{', '.join(surplus)} is no listener; there is {', '.join(_names(opened))}")
    if missing := sorted(set(_names(broker)) - set(_names(advertised))):
        raise ConfigError(
            _ADVERTISED,
            f"{', '.join(missing)} is missing: a client of that listener could not find this node",
        )


def _names(endpoints: Iterable[Endpoint]) -> list[str]:
    return [endpoint.name for endpoint in endpoints]


def _protocols(values: Mapping[str, ConfigValue], names: tuple[str, ...]) -> dict[str, str]:
    """Return security protocols; a controller's is PLAINTEXT without a map, as in Kafka."""
    protocols = {} if _PROTOCOLS in values else dict.fromkeys(names, "PLAINTEXT")
    for pair in str(values.get(_PROTOCOLS) or "").split(","):
        listener, colon, protocol = pair.strip().partition(":")
        if pair.strip() and not (listener and colon and protocol):
            raise ConfigError(_PROTOCOLS, f"{pair.strip()!r} is not NAME:PROTOCOL")
        protocols[listener.upper()] = protocol.upper()
    return protocols


def _endpoints(values: Mapping[str, ConfigValue], key: str, names: tuple[str, ...]) -> tuple[Endpoint, ...]:
    texts = values.get(key) or (BROKER_CONFIGS[key].default if key == _LISTENERS else None)
    if not isinstance(texts, list):
        return ()
    protocols = _protocols(values, names)
    endpoints = []
    for text in texts:
        listener, separator, address = text.partition("://")
        listener = listener.upper()  # as Kafka does, so that names in different keys meet
        host, colon, port = address.rpartition(":")
        if not separator or not colon or not port.isdigit() or int(port) > 65_535:
            raise ConfigError(key, f"{text!r} is not NAME://host:port")
        if protocols.get(listener, listener) != "PLAINTEXT":
            raise ConfigError(
                key,
                f"{text!r}: only PLAINTEXT is served; set {_PROTOCOLS}={listener}:PLAINTEXT",
            )
        endpoints.append(Endpoint(name=listener, host=host.strip("[]"), port=int(port)))
    return tuple(endpoints)
