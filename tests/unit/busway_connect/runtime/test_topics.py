"""`topic.creation.*`: which settings a topic is made with."""

import pytest

from busway_connect.topic_creation import Creation, creation_problems

GROUPS = {
    "topic.creation.default.partitions": "3",
    "topic.creation.default.replication.factor": "-1",
    "topic.creation.default.retention.ms": "1000",
    "topic.creation.groups": "changes, beats",
    "topic.creation.changes.include": r"bank\.public\..*, bank\.audit",
    "topic.creation.changes.exclude": r".*\.scratch",
    "topic.creation.changes.cleanup.policy": "compact",
    "topic.creation.beats.include": "__debezium-heartbeat.*",
    "topic.creation.beats.partitions": "1",
}


@pytest.mark.parametrize(
    ("topic", "partitions", "configs"),
    [
        ("bank.public.accounts", 3, {"cleanup.policy": "compact"}),
        ("bank.audit", 3, {"cleanup.policy": "compact"}),
        ("bank.public.scratch", 3, {"retention.ms": "1000"}),
        ("__debezium-heartbeat.bank", 1, {}),
        ("other", 3, {"retention.ms": "1000"}),
    ],
)
def test_the_first_group_that_takes_a_topic_says_how_it_is_made(
    topic: str, partitions: int, configs: dict[str, str]
) -> None:
    """Excluded before included; numbers that a group lacks are the default's, other settings are its own."""
    assert creation_problems(GROUPS) == {}
    made = Creation(GROUPS).topic(topic)
    assert made is not None
    assert (made.partitions, made.replication_factor, dict(made.configs)) == (partitions, -1, configs)


def test_without_settings_the_brokers_make_topics() -> None:
    """As without KIP-158."""
    assert Creation({"name": "x"}).topic("t") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topic.creation.default.partitions", "many"),
        ("topic.creation.default.replication.factor", "0"),
        ("topic.creation.beats.partitions", "-2"),
        ("topic.creation.beats.include", "("),
        ("topic.creation.slip.partitions", "1"),
    ],
)
def test_what_cannot_be_is_named(name: str, value: str) -> None:
    """A group that is not listed too, whose settings would be passed over without a word."""
    assert list(creation_problems({**GROUPS, name: value})) == [name]
