"""The worker's settings, by Kafka Connect's names.

Here: names, defaults, checks.
Not here: connectors' settings (`validation`), the command line (`busway.cli`).
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from busway.net.listening import is_this_machine
from busway.security.properties import is_security

logger = logging.getLogger("busway.connect")

JSON_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"
_CONVERTER_PREFIXES: Final = ("key.converter", "value.converter")
_CLIENT_PREFIXES: Final = ("producer.", "consumer.", "admin.")
_GUARDS: Final = (
    "security.", "ssl.client.auth", "listeners.https.", "admin.listeners", "rest.extension.classes", "rest.servlet",
    "connector.client.config.override.policy", "header.converter",
)  # fmt: skip
"""Prefixes of security settings, refused if unknown: ignoring them would be dangerous."""
_AS_HERE: Final = {"connector.client.config.override.policy": "all"}
"""Values that match the built-in behaviour."""


_SUPPORT: Final = ("disabled", "preparing", "enabled")


class BadSetting(ValueError):
    """An invalid setting; the text names it and a valid value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """All settings of a worker.

    Attributes:
        bootstrap_servers: `host:port`, several with commas.
        group_id: workers of a group have the same connectors: one works, the others stand by.
        config_storage_topic, offset_storage_topic, status_storage_topic: compacted topics, created if missing.
        offset_storage_partitions, status_storage_partitions: of created topics.
        replication_factor: of created topics; -1 takes the broker's default.
        converters: `key.converter`, `value.converter` and settings with these prefixes; connectors may override them.
        host, port: of the REST API; beyond this machine only with `insecure`, as it has no authentication. Port 0: a
            free one.
        advertised_host: address for others, and the first half of the worker's id.
        offset_flush_interval_ms: of storing source offsets (Kafka Connect: 60000); shorter means less is read again.
        task_shutdown_timeout_ms: a task still running after it is cancelled.
        session_timeout_ms, heartbeat_interval_ms: a worker silent for so long is replaced.
        plugin_modules: Python modules with users' connectors.
        clients: `producer.`, `consumer.` and `admin.` settings of all connectors; see `overrides`.
        security: `security.protocol`, `sasl.*` and `ssl.*` of the worker's own clients, and of connectors' clients that have none.
        providers: `config.providers` and settings with this prefix; see `providers`.
        exactly_once_source_support: enabled: sources write records and offsets in transactions. preparing: only configs
            are written so; all workers of a group must be preparing before the first is enabled (KIP-618).
    """

    bootstrap_servers: str = "localhost:9092"
    group_id: str = "connect-cluster"
    config_storage_topic: str = "connect-configs"
    offset_storage_topic: str = "connect-offsets"
    status_storage_topic: str = "connect-status"
    offset_storage_partitions: int = 25
    status_storage_partitions: int = 5
    replication_factor: int = -1
    converters: Mapping[str, str] = field(
        default_factory=lambda: {"key.converter": JSON_CONVERTER, "value.converter": JSON_CONVERTER}
    )
    host: str = "127.0.0.1"
    port: int = 8083
    advertised_host: str = ""
    offset_flush_interval_ms: int = 1_000
    task_shutdown_timeout_ms: int = 5_000
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    plugin_modules: tuple[str, ...] = ()
    clients: Mapping[str, str] = field(default_factory=dict, repr=False)
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    providers: Mapping[str, str] = field(default_factory=dict)
    exactly_once_source_support: str = "disabled"
    insecure: bool = False

    def __post_init__(self) -> None:
        for name in ("bootstrap_servers", "group_id", "config_storage_topic", "offset_storage_topic"):
            if not getattr(self, name):
                raise BadSetting(f"{name.replace('_', '.')} is empty")
        topics = {self.config_storage_topic, self.offset_storage_topic, self.status_storage_topic}
        if len(topics) < 3:
            raise BadSetting("config.storage.topic, offset.storage.topic and status.storage.topic are three topics")
        if not 0 <= self.port < 65536:
            raise BadSetting(f"rest.port is a number from 0 to 65535, not {self.port}")
        for name in ("offset_flush_interval_ms", "task_shutdown_timeout_ms", "offset_storage_partitions"):
            if getattr(self, name) <= 0:
                raise BadSetting(f"{name.replace('_', '.')} is above 0, not {getattr(self, name)}")
        if self.exactly_once_source_support not in _SUPPORT:
            raise BadSetting(
                f"exactly.once.source.support is one of {', '.join(_SUPPORT)}, not {self.exactly_once_source_support}"
            )
        if not self.insecure and not is_this_machine(self.host):
            raise BadSetting(
                f"host {self.host} is reachable by others and there is no authentication; use 127.0.0.1, or say insecure "
                "(--insecure) if the network is trusted"
            )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> "WorkerConfig":
        """Read a worker's properties; unknown names are skipped with a warning.

        Raises:
            BadSetting: an invalid value.
        """
        given: dict[str, object] = {}
        converters = {name: text for name, text in properties.items() if name.startswith(_CONVERTER_PREFIXES)}
        given["converters"] = {"key.converter": JSON_CONVERTER, "value.converter": JSON_CONVERTER, **converters}
        given["clients"] = {name: text for name, text in properties.items() if name.startswith(_CLIENT_PREFIXES)}
        given["security"] = {name: text for name, text in properties.items() if _is_security(name)}
        given["providers"] = {name: text for name, text in properties.items() if name.startswith("config.providers")}
        for name, text in properties.items():
            if name in converters or _is_security(name) or name.startswith(("config.providers", *_CLIENT_PREFIXES)):
                continue
            if name.startswith(_GUARDS) and text.strip().lower() != _AS_HERE.get(name):
                raise BadSetting(
                    f"{name} is not served, and to pass it over could leave open what it guards; take it out"
                )
            if name == "listeners":
                given["host"], given["port"] = _listener(text)
            elif name in _REPLICATION:
                given["replication_factor"] = _number(name, text)
            elif name == "plugin.modules":
                given["plugin_modules"] = tuple(module.strip() for module in text.split(",") if module.strip())
            elif name == "busway.insecure":
                given["insecure"] = text.strip().lower() == "true"
            elif name == "exactly.once.source.support":
                given["exactly_once_source_support"] = text.strip().lower()
            elif name in _TEXTS:
                given[_TEXTS[name]] = text.strip()
            elif name in _NUMBERS:
                given[_NUMBERS[name]] = _number(name, text)
            elif name not in _AS_HERE:
                logger.warning("the worker setting %s is not known here and is passed over", name)
        return cls(**given)  # type: ignore[arg-type]


def _is_security(name: str) -> bool:
    return is_security(name) and name != "ssl.client.auth"  # which is about clients of the REST API


_TEXTS: Final = {
    "bootstrap.servers": "bootstrap_servers",
    "group.id": "group_id",
    "config.storage.topic": "config_storage_topic",
    "offset.storage.topic": "offset_storage_topic",
    "status.storage.topic": "status_storage_topic",
    "rest.host.name": "host",
    "rest.advertised.host.name": "advertised_host",
}
_NUMBERS: Final = {
    "offset.storage.partitions": "offset_storage_partitions",
    "status.storage.partitions": "status_storage_partitions",
    "rest.port": "port",
    "offset.flush.interval.ms": "offset_flush_interval_ms",
    "task.shutdown.graceful.timeout.ms": "task_shutdown_timeout_ms",
    "session.timeout.ms": "session_timeout_ms",
    "heartbeat.interval.ms": "heartbeat_interval_ms",
}
_REPLICATION: Final = frozenset(f"{kind}.storage.replication.factor" for kind in ("config", "offset", "status"))


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadSetting(f"{name} is a number, not {text!r}") from None


def _listener(text: str) -> tuple[str, int]:
    first = text.split(",", maxsplit=1)[0].strip()
    scheme, _, rest = first.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme.lower() != "http" or not port.isdigit():
        raise BadSetting(f"listeners is http://HOST:PORT, not {text!r}")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - Kafka Connect's meaning of no host; checked like any other
