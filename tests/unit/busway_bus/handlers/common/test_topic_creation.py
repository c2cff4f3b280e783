"""Replicas of internal topics, by the brokers that a cluster has."""

from types import SimpleNamespace
from typing import Any

import pytest

from busway_bus.controller.topics import NewTopic
from busway_bus.handlers.common.topic_creation import _as_kept
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC

ALL = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC)


def node(registered: int, **properties: str) -> Any:
    """A node that knows this many brokers."""
    values = {name.replace("_", "."): value for name, value in properties.items()}
    return SimpleNamespace(
        config=BrokerConfig.from_properties(values), image=SimpleNamespace(brokers=range(registered))
    )


def voters(node: Any, count: int) -> Any:
    """The node, as one of several voters."""
    named = [f"{number}@b{number}:9093" for number in range(1, count + 1)]
    config = SimpleNamespace(
        properties=node.config.properties, voters=dict.fromkeys(named), get=node.config.get, dynamic=node.config.dynamic
    )
    return SimpleNamespace(config=config, image=node.image)


@pytest.mark.parametrize("topic", ALL)
def test_a_single_node_has_one(topic: str) -> None:
    kept = _as_kept(NewTopic(name=topic), node(1))
    assert kept.replication_factor == 1
    assert kept.configs.get("min.insync.replicas", "1") == "1"


@pytest.mark.parametrize("topic", ALL)
def test_the_first_of_three_that_start_asks_for_three(topic: str) -> None:
    """The controller refuses that until they are registered: one replica would stay one for ever."""
    kept = _as_kept(NewTopic(name=topic), voters(node(1), 3))
    assert kept.replication_factor == 3
    if topic != OFFSETS_TOPIC:
        assert kept.configs["min.insync.replicas"] == "2"


def test_fenced_brokers_count_and_a_setting_bounds() -> None:
    """A topic that is first used while a broker is down gets a replica there too."""
    assert _as_kept(NewTopic(name=OFFSETS_TOPIC), node(5)).replication_factor == 3
    two = node(5, offsets_topic_replication_factor="2")
    assert _as_kept(NewTopic(name=OFFSETS_TOPIC), two).replication_factor == 2


def test_beside_other_controllers_the_setting_holds() -> None:
    """How many brokers there will be is not known."""
    alone = node(1)
    alone = SimpleNamespace(
        config=SimpleNamespace(properties={"process.roles": ["broker"]}, voters={}, get=alone.config.get),
        image=alone.image,
    )
    assert _as_kept(NewTopic(name=OFFSETS_TOPIC), alone).replication_factor == 3
