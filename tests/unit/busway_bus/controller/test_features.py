"""Levels of features: what cannot be set is refused by name, all of a request or none, what a level needs counts as it will be."""

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.busway_bus.controller.test_topics import Cluster

from busway_bus.controller import features
from busway_bus.controller.brokers import RegisterBroker
from busway_bus.controller.features import FeatureUpdate, UpdateFeatures, UpgradeType
from busway_bus.metadata import features as served
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.features import (
    ELR_VERSION,
    FEATURES,
    KAFKAS,
    METADATA_VERSION,
    NOT_SERVED,
    SHARE_VERSION,
    SUPPORTED,
    TRANSACTION_VERSION,
    Feature,
    lacking,
    levels_of_new_clusters,
)
from busway_bus.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, ClusterImage
from busway_bus.metadata.records import ConfigRecord, FeatureLevelRecord
from busway_bus.metadata.snapshot import records_of
from busway_protocol.errors import ErrorCode, KafkaError


def cluster(**levels: int) -> Cluster:
    """One broker that supports all; new, but for these levels (written with underscores for dots)."""
    made = Cluster(brokers=0)
    delta = Delta(made.image)
    for name, level in {**levels_of_new_clusters(), **{k.replace("_", "."): v for k, v in levels.items()}}.items():
        delta.apply(FeatureLevelRecord(name=name, feature_level=level))
    made.image = delta.image()
    made.run(registration(SUPPORTED))
    return made


def registration(supported) -> RegisterBroker:
    """Broker 1 with what it supports."""
    rows = tuple((name, lowest, highest) for name, (lowest, highest) in supported.items())
    ids = {"incarnation": served_id(1), "directories": (served_id(2),)}
    return RegisterBroker(node_id=1, endpoints=(), rack=None, features=rows, **ids)


def served_id(number):
    """An id."""
    return UUID(int=number + 500)


def update(name: str, level: int, kind: int = UpgradeType.UPGRADE) -> UpdateFeatures:
    """One level."""
    return UpdateFeatures(updates=(FeatureUpdate(name=name, level=level, kind=kind),))


def test_every_row_can_be_what_it_begins_with() -> None:
    """Within its levels, with what it needs; nothing has a name that Kafka does not know."""
    begun = levels_of_new_clusters()
    for feature in FEATURES:
        assert feature.name in KAFKAS
        assert 0 <= feature.lowest <= begun.get(feature.name, 0) <= feature.highest
        assert lacking(feature.name, begun.get(feature.name, 0), begun) is None


def test_a_feature_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another needs of it is refused by both names, unless it comes in the same request."""
    needs = {1: {TRANSACTION_VERSION: 2}}
    rows = (*FEATURES, Feature(name="streams.version", highest=1, begins=0, needs=needs))
    monkeypatch.setattr(served, "FEATURES", rows)
    monkeypatch.setattr(features, "SUPPORTED", {feature.name: (feature.lowest, feature.highest) for feature in rows})
    made = cluster(transaction_version=1)
    made.run(registration({**SUPPORTED, "streams.version": (0, 1)}))
    assert "streams.version" not in levels_of_new_clusters()
    with pytest.raises(
        KafkaError, match=r"streams\.version could not be set to 1 because it depends on transaction\.version level 2"
    ):
        made.run(update("streams.version", 1))
    both = (FeatureUpdate(name="streams.version", level=1), FeatureUpdate(name=TRANSACTION_VERSION, level=2))
    made.run(UpdateFeatures(updates=both))
    assert (made.image.features["streams.version"], made.image.features[TRANSACTION_VERSION]) == (1, 2)


def test_a_broker_that_cannot_run_at_a_level_is_named() -> None:
    """One of an earlier version is in the cluster."""
    made = cluster(transaction_version=0)
    made.run(registration({**SUPPORTED, TRANSACTION_VERSION: (0, 1)}))
    with pytest.raises(KafkaError, match=r"Broker 1 only supports versions 0-1") as refused:
        made.run(update(TRANSACTION_VERSION, 2))
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    made.run(registration({METADATA_VERSION: SUPPORTED[METADATA_VERSION]}))
    with pytest.raises(KafkaError, match=r"Broker 1 does not support this feature\."):
        made.run(update(TRANSACTION_VERSION, 1))


@pytest.mark.parametrize("name", sorted(NOT_SERVED))
def test_a_feature_of_kafka_that_is_not_served_stays_off_and_the_refusal_says_why(name: str) -> None:
    """Its only level is 0, which writes nothing; it is not among the supported ones."""
    made = cluster()
    with pytest.raises(
        KafkaError, match=re.escape(f"Local controller 1 does not support this feature. {NOT_SERVED[name]}")
    ):
        made.run(update(name, 1))
    before = made.image.features
    made.run(update(name, 0, UpgradeType.SAFE_DOWNGRADE))
    assert made.image.features == before
    assert name not in SUPPORTED


def test_what_is_off_is_in_no_snapshot_and_what_is_the_same_writes_nothing() -> None:
    """A level of 0 is none; to set what is set leaves no record."""
    made = cluster()
    made.run(update(TRANSACTION_VERSION, 0, UpgradeType.SAFE_DOWNGRADE))
    assert TRANSACTION_VERSION not in made.image.features
    assert TRANSACTION_VERSION not in {getattr(record, "name", "") for record in records_of(made.image)}
    before = made.image
    made.run(update(TRANSACTION_VERSION, 0, UpgradeType.UNSAFE_DOWNGRADE))
    assert made.image.features == before.features


@pytest.mark.parametrize(
    ("kind", "resource", "name", "message"),
    [
        (GROUP_RESOURCE, "jobs", "errors.deadletterqueue.topic.name", "group jobs has "),
        (TOPIC_RESOURCE, "dlq.jobs", "errors.deadletterqueue.group.enable", "topic dlq.jobs has "),
    ],
)
def test_dead_letters_are_not_turned_off_beside_their_settings(
    kind: int, resource: str, name: str, message: str
) -> None:
    """Whether safe or not, they have to be deleted first; what has other settings does not matter."""
    made = cluster(share_version=2)
    for key, value in ((name, "true"), ("retention.ms", "1")):
        delta = Delta(made.image)
        delta.apply(ConfigRecord(resource_type=kind, resource_name=resource, name=key, value=value))
        made.image = delta.image()
    for way in (UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE):
        for level in (1, 0):
            with pytest.raises(KafkaError, match=f"{message}{name}, which needs level 2; delete it first") as refused:
                made.run(update(SHARE_VERSION, level, way))
            assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    made.run(update(SHARE_VERSION, 2))
    delta = Delta(made.image)
    delta.apply(ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=None))
    made.image = delta.image()
    made.run(update(SHARE_VERSION, 1, UpgradeType.SAFE_DOWNGRADE))
    assert made.image.features[SHARE_VERSION] == 1
    made.run(update(SHARE_VERSION, 2))
    assert made.image.features[SHARE_VERSION] == 2


UPDATES = st.builds(
    FeatureUpdate,
    name=st.sampled_from([*SUPPORTED, "kraft.version", "made.up"]),
    level=st.integers(-2, 32),
    kind=st.integers(0, 4),
)


@given(st.lists(st.tuples(st.lists(UPDATES, max_size=4), st.booleans()), max_size=8))
def test_whatever_is_asked_levels_are_served_ones(requests) -> None:
    """All of a request or none; refused or checked alone, nothing changes; a snapshot has the same levels."""
    made = cluster()
    for updates, validate_only in requests:
        before = made.image.features
        wanted = {update.name: update.level for update in updates}
        try:
            made.run(UpdateFeatures(updates=tuple(updates), validate_only=validate_only))
        except KafkaError as problem:
            refused = problem.code
        else:
            refused = ErrorCode.NONE
        if refused is not ErrorCode.NONE:
            assert refused is ErrorCode.INVALID_UPDATE_VERSION
            assert made.image.features == before
            continue
        expected = dict(before) if validate_only else {**before, **wanted}
        assert dict(made.image.features) == {name: level for name, level in expected.items() if level}
        for name, level in made.image.features.items():
            assert SUPPORTED[name][0] <= level <= SUPPORTED[name][1]
    delta = Delta(ClusterImage())
    for record in records_of(made.image):
        delta.apply(record)
    assert dict(delta.image().features) == dict(made.image.features)


def test_eligible_replicas_need_one_minimum_for_all_brokers() -> None:
    """The cluster gets the controller's, and that of a single broker ends; a second time nothing changes."""
    made = cluster(eligible_leader_replicas_version=0)
    name = "min.insync.replicas"
    delta = Delta(made.image)
    delta.apply(ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="1", name=name, value="3"))
    made.image = delta.image()
    made.run(update(ELR_VERSION, 1))
    assert made.image.features[ELR_VERSION] == 1
    assert made.image.broker_configs("") == {name: "1"}
    assert made.image.broker_configs("1") == {}
    before = made.image
    made.run(update(ELR_VERSION, 1))
    assert made.image.configs == before.configs
