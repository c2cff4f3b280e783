"""Settings of a running broker: which are taken, and which value is in force."""

import itertools

import pytest

from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.config_def import ConfigError


def test_the_strongest_layer_counts() -> None:
    """The broker's own, then the cluster's default, then the properties file, whatever synonym that uses; then Kafka's default."""
    layers = {"static": 3 * 3_600_000, "cluster": 7_000_000, "own": 6_000_000}
    for present in itertools.product([False, True], repeat=3):
        is_there = dict(zip(layers, present, strict=True))
        static = {"log.retention.hours": "3"} if is_there["static"] else {}
        config = BrokerConfig.from_properties(static)
        cluster = {"log.retention.ms": "7000000"} if is_there["cluster"] else {}
        own = {"log.retention.ms": "6000000"} if is_there["own"] else {}
        config.dynamic.follow(cluster=cluster, own=own)
        strongest = [layers[name] for name in layers if is_there[name]]
        assert config.topic_default("retention.ms") == (strongest[-1] if strongest else 604_800_000)
        config.dynamic.follow(cluster={}, own={})
        assert config.topic_default("retention.ms") == (layers["static"] if is_there["static"] else 604_800_000)


@pytest.mark.parametrize("per_broker", [False, True])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.retention.ms", "1_000"),
        ("log.retention.ms", "١٢"),
        ("max.connections", "-1"),
        ("log.cleaner.min.cleanable.ratio", "nan"),
        ("log.cleaner.min.cleanable.ratio", "0_1.0"),
        ("num.io.threads", "0"),
        ("num.network.threads", "-5"),
        ("background.threads", "0"),
        ("log.cleaner.threads", "-1"),
        ("log.cleaner.backoff.ms", "-1"),
        ("group.coordinator.cached.buffer.max.bytes", "1"),
    ],
)
def test_a_value_that_kafka_refuses_is_refused(name: str, value: str, *, per_broker: bool) -> None:
    """By its name, before it is written; settings without effect here too, as brokers of Kafka may join the cluster."""
    with pytest.raises(ConfigError, match=name):
        BrokerConfig.defaults().dynamic.check({name: value}, per_broker=per_broker)


def test_a_value_that_cannot_be_used_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """One that an earlier version has written: the node starts, says so, and has the others."""
    config = BrokerConfig.defaults()
    config.dynamic.follow(cluster={"log.retention.ms": "1_000", "max.connections": "7"}, own={"node.id": "9"})
    assert (config.get("max.connections"), config.node_id) == (7, 1)
    assert config.topic_default("retention.ms") == 604_800_000
    assert len(caplog.messages) == 2
