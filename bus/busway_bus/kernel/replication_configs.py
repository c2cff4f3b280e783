"""The settings of replication between brokers, with Kafka's names, types and defaults.

Here: the keys.
Not here: their use (`replication.replicator`, `replication.read_replicas`).
"""

from collections.abc import Sequence
from typing import Final

from busway_bus.kernel.config_def import ConfigKey, ConfigType, ConfigValue

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_SELECTORS: Final = frozenset({None, RACK_AWARE, "org.apache.kafka.common.replica.LeaderSelector"})


def _refuse_selector(value: ConfigValue) -> str | None:
    return None if value in _SELECTORS else f"plug-in classes are never loaded; set {RACK_AWARE}, or remove it"


def _int(name: str, default: int, doc: str, *, at_least: int = 0) -> ConfigKey:
    return ConfigKey(name=name, type=ConfigType.INT, default=default, doc=doc, at_least=at_least)


REPLICATION_CONFIGS: Final[Sequence[ConfigKey]] = (
    _int("replica.fetch.backoff.ms", 1000, "Pause, in ms, after a fetch of a follower failed."),
    _int("replica.fetch.max.bytes", 1_048_576, "Bytes of one partition that a follower requests in one fetch."),
    _int("replica.fetch.min.bytes", 1, "Bytes that the leader waits for before it responds to a follower's fetch."),
    _int("replica.fetch.response.max.bytes", 10_485_760, "Bytes that a follower requests in one fetch."),
    _int("replica.fetch.wait.max.ms", 500, "Longest wait, in ms, of a follower's fetch at the leader."),
    _int("replica.socket.timeout.ms", 30_000, "Longest wait, in ms, of a follower for a response.", at_least=1),
    ConfigKey(
        name="replica.lag.time.max.ms",
        type=ConfigType.LONG,
        default=30_000,
        doc="A follower that was behind for longer, in ms, leaves the in-sync replicas.",
        at_least=1,
    ),
    ConfigKey(
        name="replica.selector.class",
        type=ConfigType.STRING,
        default=None,
        doc="Which replica consumers read from: the leader, or with Kafka's RackAwareReplicaSelector one in their rack.",
        refuse=_refuse_selector,
    ),
)
