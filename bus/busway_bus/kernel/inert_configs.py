"""Broker keys of Kafka 4.3 that are accepted without effect, or refused.

Here: names, types and defaults: a server.properties written for Apache Kafka starts Busway, and `kafka-configs
--describe --all` shows the same. Inert: ignoring it breaks nothing, for the reason given (`INERT`). Refused: security,
tiered storage and plug-in classes; ignoring those would mislead. Some inert keys accept only values that promise
nothing unserved (`_KEPT`).
Not here: served keys (`broker_configs`).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from busway_bus.kernel.config_def import INT_MAX, ConfigKey, ConfigType, ConfigValue, by_name

_B, _S, _I, _L, _D, _W, _H = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
    ConfigType.SHORT,
)

_Rows = tuple[tuple[str, ConfigType, ConfigValue], ...]
INERT: Final[Mapping[str, _Rows]] = {
    "one event loop does this work; its queues are bounded in bytes": (
        ("background.threads", _I, 10),
        ("group.coordinator.background.threads", _I, 2),
        ("group.coordinator.threads", _I, 4),
        ("log.cleaner.threads", _I, 1),
        ("num.io.threads", _I, 8),
        ("num.network.threads", _I, 3),
        ("num.recovery.threads.per.data.dir", _I, 2),
        ("queued.max.requests", _I, 500),
        ("share.coordinator.threads", _I, 1),
    ),
    "replication is not throttled, replicas do not move between directories, and a broker that stops always hands over its leaderships": (
        ("alter.log.dirs.replication.quota.window.num", _I, 11),
        ("alter.log.dirs.replication.quota.window.size.seconds", _I, 1),
        ("controlled.shutdown.enable", _B, True),
        ("num.replica.alter.log.dirs.threads", _I, None),
        ("num.replica.fetchers", _I, 1),
        ("replica.socket.receive.buffer.bytes", _I, 65_536),
        ("replication.quota.window.num", _I, 11),
        ("replication.quota.window.size.seconds", _I, 1),
    ),
    "a node stops when its only directory fails, and its controller notices that": (
        ("log.dir.failure.timeout.ms", _L, 30_000),
    ),
    "a retry backoff, a linger time or a polling interval: it affects latency only": (
        ("add.partitions.to.txn.retry.backoff.ms", _I, 20),
        ("controller.quorum.append.linger.ms", _I, 25),
        ("group.coordinator.append.linger.ms", _I, -1),
        ("log.cleaner.backoff.ms", _L, 15_000),
        ("share.coordinator.append.linger.ms", _I, -1),
        ("socket.connection.setup.timeout.max.ms", _L, 30_000),
    ),
    "a buffer or clean-up of Kafka's own memory; Busway's memory has its own bounds": (
        ("delete.records.purgatory.purge.interval.requests", _I, 1),
        ("fetch.purgatory.purge.interval.requests", _I, 1000),
        ("group.coordinator.cached.buffer.max.bytes", _I, 1_048_588),
        ("log.cleaner.dedupe.buffer.size", _L, 134_217_728),
        ("log.cleaner.io.buffer.load.factor", _D, 0.9),
        ("log.cleaner.io.buffer.size", _I, 524_288),
        ("offsets.load.buffer.size", _I, 5_242_880),
        ("producer.purgatory.purge.interval.requests", _I, 1000),
        ("share.coordinator.cached.buffer.max.bytes", _I, 1_048_588),
        ("share.coordinator.load.buffer.size", _I, 5_242_880),
        ("share.fetch.purgatory.purge.interval.requests", _I, 1000),
        ("socket.receive.buffer.bytes", _I, 102_400),
        ("transaction.state.log.load.buffer.size", _I, 5_242_880),
    ),
    "each commit is one batch, compressed or not: it affects disk space only": (
        ("offsets.topic.compression.codec", _I, 0),
        ("share.coordinator.state.topic.compression.codec", _I, 0),
    ),
    "a log start offset is on disk before DeleteRecords is answered": (
        ("log.flush.start.offset.checkpoint.interval.ms", _I, 60_000),
    ),
    "the metadata log rolls with each snapshot; no record is written when idle": (
        ("metadata.log.segment.bytes", _I, 1_073_741_824),
        ("metadata.log.segment.ms", _L, 604_800_000),
        ("metadata.max.idle.interval.ms", _I, 500),
    ),
    "no quotas are served; setting one is refused": (
        ("controller.quota.window.num", _I, 11),
        ("controller.quota.window.size.seconds", _I, 1),
        ("quota.window.num", _I, 11),
        ("quota.window.size.seconds", _I, 1),
    ),
    "metrics have no windows, and none are requested from clients": (
        ("kafka.metrics.polling.interval.secs", _I, 10),
        ("kafka.metrics.reporters", _W, []),
        ("metric.reporters", _W, ["org.apache.kafka.common.metrics.JmxReporter"]),
        ("metrics.num.samples", _I, 2),
        ("metrics.recording.level", _S, "INFO"),
        ("metrics.sample.window.ms", _L, 30_000),
        ("telemetry.max.bytes", _I, 1_048_576),
    ),
    "streams groups are refused": (
        ("group.streams.assignment.interval.ms", _I, 1000),
        ("group.streams.heartbeat.interval.ms", _I, 5000),
        ("group.streams.initial.rebalance.delay.ms", _I, 3000),
        ("group.streams.max.assignment.interval.ms", _I, 15_000),
        ("group.streams.max.heartbeat.interval.ms", _I, 15_000),
        ("group.streams.max.session.timeout.ms", _I, 60_000),
        ("group.streams.max.size", _I, INT_MAX),
        ("group.streams.max.standby.replicas", _I, 2),
        ("group.streams.min.assignment.interval.ms", _I, 0),
        ("group.streams.min.heartbeat.interval.ms", _I, 5000),
        ("group.streams.min.session.timeout.ms", _I, 45_000),
        ("group.streams.num.standby.replicas", _I, 0),
        ("group.streams.session.timeout.ms", _I, 45_000),
    ),
    "the only accepted value is the implemented behaviour": (
        ("controller.quorum.auto.join.enable", _B, False),
        ("group.coordinator.rebalance.protocols", _W, ["classic", "consumer", "streams"]),
        ("group.share.assignors", _W, ["simple"]),
        ("log.cleaner.io.max.bytes.per.second", _D, 1.7976931348623157e308),
    ),
}
"""Reason to ignore it → (name, type, default)."""


def _rebalance_protocols(value: list[str]) -> str | None:
    if not {"classic", "consumer"} <= set(value) <= {"classic", "consumer", "share", "streams"}:
        return (
            "classic and consumer groups are both served, and streams groups are not; to turn consumer groups off lower the feature: "
            "kafka-features.sh downgrade --feature group.version=0"
        )
    return None


def _only(kept: ConfigValue, reason: str) -> Callable[[Any], str | None]:
    return lambda value: None if value == kept else reason


_JMX: Final = "org.apache.kafka.common.metrics.JmxReporter"
_KEPT: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "controller.quorum.auto.join.enable": _only(
        False, "controllers do not join by themselves; name them in controller.quorum.voters"
    ),
    "group.coordinator.rebalance.protocols": _rebalance_protocols,
    "log.cleaner.threads": lambda value: (
        None if value else "compaction stops with log.cleaner.enable=false alone; set that"
    ),
    "group.share.assignors": _only(["simple"], "plug-in classes are never loaded; simple is the one assignor"),
    "kafka.metrics.reporters": _only([], "plug-in classes are never loaded; remove it"),
    "log.cleaner.io.max.bytes.per.second": _only(
        1.7976931348623157e308, "the cleaner's reads and writes are not limited; remove it"
    ),
    "metric.reporters": lambda value: None if set(value) <= {_JMX} else "plug-in classes are never loaded; remove it",
}
"""Checks of inert keys, returning why a value is refused."""
_AT_LEAST: Final[Mapping[str, int]] = {
    "background.threads": 1,
    "group.coordinator.cached.buffer.max.bytes": 524_288,
    "group.streams.assignment.interval.ms": 0,
    "log.cleaner.backoff.ms": 0,
    "log.cleaner.io.buffer.size": 0,
    "log.cleaner.threads": 0,
    "num.io.threads": 1,
    "num.network.threads": 1,
    "num.recovery.threads.per.data.dir": 1,
    "share.coordinator.cached.buffer.max.bytes": 524_288,
}
"""Kafka's bounds of dynamic inert keys.

The metadata must be valid on other brokers, too.
"""

INERT_CONFIGS: Final[Mapping[str, ConfigKey]] = by_name(
    ConfigKey(
        name=name,
        type=kind,
        default=default,
        doc=f"Accepted as in Apache Kafka; without effect on this node: {reason}.",
        refuse=_KEPT.get(name),
        at_least=_AT_LEAST.get(name),
    )
    for reason, rows in INERT.items()
    for name, kind, default in rows
)

_THROTTLED: Final = "replication is not throttled; leave it out, as kafka-reassign-partitions does without --throttle"
REFUSED_PREFIXES: Final[Mapping[str, str]] = {
    "ssl.": "TLS is not served yet; terminate it in front of the broker",
    "sasl.": "SASL is not served yet",
    "security.": "only PLAINTEXT is served",
    "listener.name.": "per-listener security settings are not served yet",
    "authorizer.class.name": "access control is not served yet",
    "principal.builder.class": "plug-in classes are never loaded",
    "delegation.token.": "delegation tokens are not served yet",
    "remote.": "tiered storage is not served",
    "follower.fetch.last.tiered.offset.enable": "tiered storage is not served",
    "alter.config.policy.class.name": "plug-in classes are never loaded",
    "create.topic.policy.class.name": "plug-in classes are never loaded",
    "client.quota.callback.class": "plug-in classes are never loaded",
    "config.providers": "a configuration value never names code or a file to read back",
    "leader.replication.throttled.rate": _THROTTLED,
    "follower.replication.throttled.rate": _THROTTLED,
    "replica.alter.log.dirs.io.max.bytes.per.second": "one data directory is served",
    "cordoned.log.dirs": "one data directory is served",
    "connection.failed.authentication.delay.ms": "authentication is not served yet",
    "connections.max.reauth.ms": "authentication is not served yet",
    "early.start.listeners": "all listeners start together",
    "max.connection.creation.rate": "connection rates are not limited yet; use max.connections",
    "max.connections.per.ip.overrides": "one limit for all addresses is served: max.connections.per.ip",
    "metadata.log.dir": "the metadata log lives in log.dirs",
    "transaction.two.phase.commit.enable": "two-phase commit is not served",
    "zookeeper.": "there is no ZooKeeper",
}
"""Reasons for users, by prefix."""
