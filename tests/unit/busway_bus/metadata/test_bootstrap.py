"""The levels in `bootstrap.checkpoint`: those that are served are taken, others are refused by name."""

from uuid import UUID

import pytest

from busway_bus.log.meta_properties import WrongDirectory
from busway_bus.metadata.bootstrap import first_records
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.features import levels_of_new_clusters
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.records import FeatureLevelRecord, TopicRecord, to_bytes
from busway_protocol.records.builder import BatchBuilder


def checkpoint(*records: object) -> bytes:
    """A file with these records; control batches, which Kafka puts around them, are not read."""
    builder = BatchBuilder()
    for record in records:
        builder.append(0, None, to_bytes(record))
    return bytes(builder.build())


def levels(**features: int) -> bytes:
    """A file with these levels of features, `_` for a point."""
    return checkpoint(
        *(FeatureLevelRecord(name=name.replace("_", "."), feature_level=level) for name, level in features.items())
    )


def test_without_a_file_the_levels_are_those_of_this_release() -> None:
    """Each that is not 0."""
    assert {record.name: record.feature_level for record in first_records(None)} == levels_of_new_clusters()


def test_levels_of_the_file_count() -> None:
    """Lower ones, too; 0 is left out, and so is what Kafka's tool writes unasked."""
    records = first_records(levels(metadata_version=25, transaction_version=1, group_version=0, streams_version=1))
    assert [(record.name, record.feature_level) for record in records] == [
        ("metadata.version", 25),
        ("transaction.version", 1),
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (levels(metadata_version=31), "metadata.version=31. Levels 7 to 30 are served."),
        (levels(metadata_version=30, streams_version=2), "Streams groups"),
        (levels(metadata_version=30, made_up=1), "made.up=1"),
        (
            levels(metadata_version=20, eligible_leader_replicas_version=1),
            "eligible.leader.replicas.version=1, which needs metadata.version=23",
        ),
        (levels(group_version=1), "has no level of metadata.version"),
        (checkpoint(TopicRecord(name="t", topic_id=UUID(int=9))), "asks for a TopicRecord"),
        (levels(metadata_version=30)[:-1] + b"\xff", "cannot be read"),
    ],
)
def test_what_is_not_served_is_refused_by_name(content: bytes, words: str) -> None:
    """With the remedy."""
    with pytest.raises(WrongDirectory, match="remove the file") as refused:
        first_records(content)
    assert words in str(refused.value)


def image(min_isr: str | None) -> ClusterImage:
    delta = Delta(ClusterImage())
    for record in first_records(None, min_isr):
        delta.apply(record)
    return delta.image()


def test_the_brokers_of_a_cluster_share_one_minimum_of_in_sync_replicas() -> None:
    """As Kafka's controller writes it; a node alone needs none."""
    assert image("2").broker_configs("") == {"min.insync.replicas": "2"}
    assert image(None).broker_configs("") == {}
    assert image("2").features == image(None).features == levels_of_new_clusters()
