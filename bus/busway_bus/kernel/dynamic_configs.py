"""Broker settings that change at run time (KIP-226).

Here: which are dynamic, their checks, the precedence: broker's dynamic > cluster's dynamic > static > default.
Not here: changing (`controller.configs`), storing (the metadata log).
"""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from busway_bus.kernel.broker_configs import BROKER_CONFIGS, SYNONYMS
from busway_bus.kernel.config_def import ConfigError, ConfigValue, closest, render
from busway_bus.kernel.group_bounds import check_together
from busway_bus.kernel.inert_configs import REFUSED_PREFIXES
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS

logger = logging.getLogger("busway.node")

DYNAMIC: Final = frozenset(
    {
        *(key.synonyms[0] for key in TOPIC_CONFIGS.values() if key.synonyms),
        "background.threads",
        "group.consumer.assignment.interval.ms",
        "group.coordinator.cached.buffer.max.bytes",
        "group.share.assignment.interval.ms",
        "group.streams.assignment.interval.ms",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "max.connections",
        "max.connections.per.ip",
        "metric.reporters",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "producer.id.expiration.ms",
        "share.coordinator.cached.buffer.max.bytes",
        "transaction.partition.verification.enable",
    }
)
"""Kafka 4.3's dynamic settings, where this node has them, and `log.durability`."""
CLUSTER_KEY: Final = "min.insync.replicas"
"""The only static value that Kafka's controller makes a cluster default (KIP-966)."""
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class DynamicConfigs:
    """The dynamic settings of one node.

    Attributes:
        own: the broker's, as text.
        cluster: the defaults of the cluster, as text.
        values: the typed values in force of every static or dynamic setting.
    """

    __slots__ = ("_followed", "_static", "cluster", "own", "values")

    def __init__(self, static: Mapping[str, ConfigValue]) -> None:
        self._static = static
        self._followed: tuple[Mapping[str, str], Mapping[str, str]] = (_NONE, _NONE)
        self.own: Mapping[str, str] = _NONE
        self.cluster: Mapping[str, str] = _NONE
        self.values: Mapping[str, ConfigValue] = static

    def defaults(self, cluster: Mapping[str, str]) -> Mapping[str, str]:
        static = render(self._static.get(CLUSTER_KEY, BROKER_CONFIGS[CLUSTER_KEY].default))
        assert static is not None
        return {CLUSTER_KEY: static, **cluster}

    def follow(self, *, cluster: Mapping[str, str], own: Mapping[str, str]) -> bool:
        """Put settings in force, log unusable ones; return whether any changed."""
        if (cluster, own) == self._followed:
            return False
        self.cluster, self.own = _usable(cluster), _usable(own)
        self._followed = cluster, own
        self.values = self._merged(self.cluster, self.own)
        return True

    def check(self, configs: Mapping[str, str], *, per_broker: bool) -> None:
        """Check settings that replace those in force, in Kafka's words.

        `configs`: all dynamic settings of the broker (`per_broker`), or of the cluster. ConfigError: a name is static
        or unknown (Kafka keeps these for plug-ins), or a value is not allowed.
        """
        for name in configs:
            _check_known(name)
        if fixed := sorted(configs.keys() - DYNAMIC):
            text = f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
            raise ConfigError(fixed[0], "cannot be changed while the broker runs", text)
        values = self._merged(self.cluster, configs) if per_broker else self._merged(configs, self.own)
        check_together(lambda name: values.get(name, BROKER_CONFIGS[name].default))

    def _merged(self, cluster: Mapping[str, str], own: Mapping[str, str]) -> dict[str, ConfigValue]:
        values = dict(self._static)
        for layer in (cluster, own):
            for name, text in layer.items():
                for synonym in SYNONYMS.get(name, (name,)):  # a weaker synonym of a stronger layer wins
                    values.pop(synonym, None)
                values[name] = BROKER_CONFIGS[name].parse(text)
        return values


def _usable(configs: Mapping[str, str]) -> Mapping[str, str]:
    usable = {}
    for name, text in configs.items():
        try:
            if name not in DYNAMIC:
                raise ConfigError(name, "cannot be changed while the broker runs")
            BROKER_CONFIGS[name].parse(text)
        except ConfigError as problem:
            logger.error("a dynamic setting is left out: %s", problem)
        else:
            usable[name] = text
    return usable


def _check_known(name: str) -> None:
    if name in BROKER_CONFIGS:
        return
    reason = next((reason for prefix, reason in REFUSED_PREFIXES.items() if name.startswith(prefix)), None)
    if reason is not None:
        raise ConfigError(name, reason)
    hint = closest(name, BROKER_CONFIGS)
    raise ConfigError(name, "unknown broker config" + (f", did you mean {hint}?" if hint else ""))
