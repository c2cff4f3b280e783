"""A killed broker has every acknowledged record, unless a topic of its own acknowledges what is not flushed."""

from typing import Any

import pytest
from tests.unit.busway_bus.controller.members import Members

from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.topics import OFFSETS_TOPIC
from busway_bus.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from busway_bus.metadata.records import ConfigRecord
from busway_bus.nodes.kept_records import keeps_records


@pytest.mark.parametrize(
    ("properties", "settings", "kept"),
    [
        ({}, (), True),
        ({}, ((TOPIC_RESOURCE, "t", "durability", "os"),), False),
        ({}, ((TOPIC_RESOURCE, "t", "durability", "interval"),), False),
        ({}, ((TOPIC_RESOURCE, "elsewhere", "durability", "os"),), True),
        ({"log.durability": "os"}, (), False),
        ({}, ((BROKER_RESOURCE, "", "log.durability", "os"),), False),
        ({}, ((BROKER_RESOURCE, "1", "log.durability", "os"),), False),
        ({}, ((BROKER_RESOURCE, "2", "log.durability", "os"),), True),
        (
            {"log.durability": "os"},
            ((TOPIC_RESOURCE, "t", "durability", "flush"),),
            True,
        ),
        (
            {},
            ((BROKER_RESOURCE, "", "log.durability", "os"), (BROKER_RESOURCE, "1", "log.durability", "flush")),
            True,
        ),
    ],
)
def test_which_topics_count(properties: dict[str, str], settings: tuple[tuple[Any, ...], ...], kept: bool) -> None:
    """Those with a replica on the broker, by the setting in force; internal topics are always flushed."""
    members = Members(2)
    members.create("t", (1, 2))
    members.create("elsewhere", (2,))
    members.create(OFFSETS_TOPIC, (1, 2))
    members.apply(
        ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
        for kind, resource, name, value in settings
    )
    config = BrokerConfig.from_properties({"node.id": "1", "log.dirs": "d", **properties})
    assert keeps_records(members.image, config) is kept
