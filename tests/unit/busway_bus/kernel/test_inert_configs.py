"""Kafka's keys without effect: every value that would promise something is refused."""

import pytest

from busway_bus.kernel.broker_configs import BROKER_CONFIGS
from busway_bus.kernel.config_def import ConfigError
from busway_bus.kernel.inert_configs import INERT, INERT_CONFIGS, REFUSED_PREFIXES


def test_each_key_has_one_reason() -> None:
    """The reason is in the documentation that `kafka-configs --describe` shows."""
    names = [name for rows in INERT.values() for name, _, _ in rows]
    assert len(names) == len(set(names)) == len(INERT_CONFIGS)
    for reason, rows in INERT.items():
        for name, _, _ in rows:
            assert INERT_CONFIGS[name].doc.endswith(f"without effect on this node: {reason}.")


def test_a_served_key_is_neither_inert_nor_refused() -> None:
    """The three lists are disjoint."""
    served = {name for name in BROKER_CONFIGS if name not in INERT_CONFIGS}
    refused = {name for name in served | set(INERT_CONFIGS) if name.startswith(tuple(REFUSED_PREFIXES))}
    assert not refused & set(INERT_CONFIGS)


@pytest.mark.parametrize(
    ("name", "accepted", "refused", "reason"),
    [
        ("controller.quorum.auto.join.enable", "false", "true", "controllers do not join by themselves"),
        ("group.coordinator.rebalance.protocols", "classic,consumer", "classic", "group.version=0"),
        (
            "group.coordinator.rebalance.protocols",
            "classic,consumer,streams,share",
            "consumer,classic,x",
            "group.version",
        ),
        ("log.cleaner.threads", "4", "0", "log.cleaner.enable=false"),
        ("group.share.assignors", "simple", "org.example.Own", "plug-in classes are never loaded"),
        ("kafka.metrics.reporters", "", "org.example.Own", "plug-in classes are never loaded"),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter", "org.example.Own", "plug-in classes"),
        ("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", "1000000", "are not limited"),
    ],
)
def test_a_value_that_promises_something_is_refused(name: str, accepted: str, refused: str, reason: str) -> None:
    """With what to set instead."""
    INERT_CONFIGS[name].parse(accepted)
    with pytest.raises(ConfigError, match=reason):
        INERT_CONFIGS[name].parse(refused)


def test_kafkas_lower_bounds_hold() -> None:
    """A value of the metadata must be valid on a broker of Apache Kafka, too."""
    INERT_CONFIGS["num.io.threads"].parse("1")
    with pytest.raises(ConfigError, match="Value must be at least 1"):
        INERT_CONFIGS["num.io.threads"].parse("0")
