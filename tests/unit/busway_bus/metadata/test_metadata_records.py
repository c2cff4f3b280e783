"""Records of the metadata log: written and read back, damaged ones refused."""

import contextlib
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from busway_bus.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    from_bytes,
    to_bytes,
)
from busway_protocol.buffers import uvarint
from busway_protocol.compile import encode
from busway_protocol.errors import MalformedMessage

ONE = UUID(int=1)
PARTITION: dict[str, Any] = {
    "partition_id": 3,
    "topic_id": ONE,
    "replicas": [1, 2],
    "isr": [1],
    "removing_replicas": [],
    "adding_replicas": [],
    "leader": 1,
    "leader_epoch": 4,
    "partition_epoch": 5,
    "directories": [UUID(int=8), UUID(int=9)],
}


@pytest.mark.parametrize(
    "record",
    [
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=ONE,
            broker_epoch=7,
            end_points=[BrokerEndpoint(name="PLAINTEXT", host="h", port=65_535, security_protocol=0)],
            features=[BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
            rack=None,
            fenced=False,
            log_dirs=[ONE],
        ),
        TopicRecord(name="t", topic_id=ONE),
        PartitionRecord(**PARTITION),
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=None),
        PartitionChangeRecord(partition_id=3, topic_id=ONE, leader=1),
        PartitionChangeRecord(partition_id=3, topic_id=ONE, isr=[1, 2], directories=[UUID(int=8)]),
        RemoveTopicRecord(topic_id=ONE),
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        ClearElrRecord(topic_name="t"),
        ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=1_000),
        UnregisterBrokerRecord(broker_id=1, broker_epoch=7),
        FenceBrokerRecord(id=1, epoch=7),
        UnfenceBrokerRecord(id=1, epoch=7),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, in_controlled_shutdown=1),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=1, log_dirs=[ONE]),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, cordoned_log_dirs=[]),
    ],
)
def test_a_record_comes_back(record: Any) -> None:
    """Every type, as it is written."""
    assert from_bytes(to_bytes(record)) == record


def test_a_partition_with_eligible_replicas_is_read() -> None:
    """Version 2 has eligible leader replicas and is written, as by Kafka since 4.0-IV1; version 1 is older."""
    record = PartitionRecord(**PARTITION, eligible_leader_replicas=[2], last_known_elr=[])
    assert from_bytes(to_bytes(record)) == record
    assert to_bytes(record)[:3] == bytes((1, 3, 2))
    older = PartitionRecord(**PARTITION)
    assert from_bytes(uvarint(1) + uvarint(3) + uvarint(1) + encode(older, 1)) == older


@pytest.mark.parametrize(
    ("changes", "version"),
    [
        ({"fenced": 1}, 0),
        ({"fenced": -1}, 0),
        ({"in_controlled_shutdown": 1}, 1),
        ({"log_dirs": [ONE]}, 2),
        ({"cordoned_log_dirs": []}, 3),
    ],
)
def test_a_changed_registration_is_written_as_by_kafka(changes: dict[str, Any], version: int) -> None:
    """In the first version with the changed field."""
    record = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, **changes)
    assert to_bytes(record)[:3] == bytes((1, 17, version))


@given(
    st.binary(max_size=80)
    | st.tuples(st.sampled_from([1, 2, 3, 4, 7, 8, 9, 12, 15, 17]), st.integers(0, 3), st.binary(max_size=60)).map(
        lambda parts: bytes((1, parts[0], parts[1])) + parts[2]
    )
)
@example(bytes((1, 2, 9)))
@example(bytes((2, 2, 0)))
@example(b"")
def test_arbitrary_bytes_are_refused_or_read(value: bytes) -> None:
    """What is unknown or damaged is a MalformedMessage and nothing else."""
    with contextlib.suppress(MalformedMessage):
        from_bytes(value)
