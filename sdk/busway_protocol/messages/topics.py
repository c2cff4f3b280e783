"""Creating, growing and deleting topics."""

from dataclasses import field
from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import (
    ZERO_UUID,
    Bool,
    BrokerId,
    Entity,
    Int8,
    Int16,
    Int32,
    NullableStr,
    Str,
    TopicName,
    Uuid,
    ignorable,
    nullable_since,
    since,
    tag,
    until,
)


@struct
class CreatableReplicaAssignment:
    """Brokers of one partition, the preferred leader first."""

    partition_index: Int32
    broker_ids: list[BrokerId]


@struct
class CreatableTopicConfig:
    name: Str
    value: NullableStr


@struct
class CreatableTopic:
    name: TopicName
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


@message(api_key=19, direction="request", versions=(2, 7), flexible=5)
class CreateTopicsRequest:
    """Topics to create; -1 is the default number of partitions or replicas (KIP-464)."""

    topics: list[CreatableTopic]
    timeout_ms: Int32 = 60000
    validate_only: Annotated[Bool, since(1)] = False


@struct
class CreatableTopicConfigs:
    name: Annotated[Str, since(5)] = ""
    value: Annotated[NullableStr, since(5)] = ""
    read_only: Annotated[Bool, since(5)] = False
    config_source: Annotated[Int8, since(5), ignorable] = -1
    is_sensitive: Annotated[Bool, since(5)] = False


@struct
class CreatableTopicResult:
    name: TopicName
    topic_id: Annotated[Uuid, since(7), ignorable] = ZERO_UUID
    error_code: Int16
    error_message: Annotated[NullableStr, since(1), ignorable]
    topic_config_error_code: Annotated[Int16, since(5), tag(0), ignorable] = 0
    num_partitions: Annotated[Int32, since(5), ignorable] = -1
    replication_factor: Annotated[Int16, since(5), ignorable] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, since(5), ignorable] = field(default_factory=list)


@message(api_key=19, direction="response", versions=(2, 7), flexible=5)
class CreateTopicsResponse:
    throttle_time_ms: Annotated[Int32, since(2), ignorable] = 0
    topics: list[CreatableTopicResult]


@struct
class DeleteTopicState:
    """By name, or by id if the name is null."""

    name: Annotated[NullableStr, since(6), Entity("topicName")] = None
    topic_id: Annotated[Uuid, since(6)] = ZERO_UUID


@message(api_key=20, direction="request", versions=(1, 6), flexible=4)
class DeleteTopicsRequest:
    topics: Annotated[list[DeleteTopicState], since(6)] = field(default_factory=list)
    topic_names: Annotated[list[TopicName], until(5), ignorable] = field(default_factory=list)
    timeout_ms: Int32


@struct
class DeletableTopicResult:
    name: Annotated[NullableStr, nullable_since(6), Entity("topicName")]
    topic_id: Annotated[Uuid, since(6), ignorable] = ZERO_UUID
    error_code: Int16
    error_message: Annotated[NullableStr, since(5), ignorable] = None


@message(api_key=20, direction="response", versions=(1, 6), flexible=4)
class DeleteTopicsResponse:
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    responses: list[DeletableTopicResult]


@struct
class CreatePartitionsAssignment:
    broker_ids: list[BrokerId]


@struct
class CreatePartitionsTopic:
    name: TopicName
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None


@message(api_key=37, direction="request", versions=(0, 3), flexible=2)
class CreatePartitionsRequest:
    """New numbers of partitions (KIP-195)."""

    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool


@struct
class CreatePartitionsTopicResult:
    name: TopicName
    error_code: Int16
    error_message: NullableStr = None


@message(api_key=37, direction="response", versions=(0, 3), flexible=2)
class CreatePartitionsResponse:
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult]
