"""Topics, their partitions and leaders."""

from dataclasses import field
from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import (
    ZERO_UUID,
    Bool,
    BrokerId,
    Entity,
    Int16,
    Int32,
    NullableStr,
    Str,
    TopicName,
    Uuid,
    ignorable,
    nullable_since,
    since,
    until,
)


@struct
class MetadataRequestTopic:
    """By name, or from version 10 on by id."""

    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    name: Annotated[NullableStr, nullable_since(10), Entity("topicName")]


@message(api_key=3, direction="request", versions=(0, 13), flexible=9)
class MetadataRequest:
    """Request for topics; all for an empty list in version 0, for null from version 1 on."""

    topics: Annotated[list[MetadataRequestTopic] | None, nullable_since(1)]
    allow_auto_topic_creation: Annotated[Bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, since(8), until(10)] = False
    include_topic_authorized_operations: Annotated[Bool, since(8)] = False


@struct
class MetadataResponseBroker:
    node_id: BrokerId
    host: Str
    port: Int32
    rack: Annotated[NullableStr, since(1), ignorable] = None


@struct
class MetadataResponsePartition:
    error_code: Int16
    partition_index: Int32
    leader_id: BrokerId
    leader_epoch: Annotated[Int32, since(7), ignorable] = -1
    replica_nodes: list[BrokerId]
    isr_nodes: list[BrokerId]
    offline_replicas: Annotated[list[BrokerId], since(5), ignorable] = field(default_factory=list)


@struct
class MetadataResponseTopic:
    error_code: Int16
    name: Annotated[NullableStr, nullable_since(12), Entity("topicName")]
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    is_internal: Annotated[Bool, since(1), ignorable] = False
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Annotated[Int32, since(8)] = -2147483648


@message(api_key=3, direction="response", versions=(0, 13), flexible=9)
class MetadataResponse:
    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    brokers: list[MetadataResponseBroker]
    cluster_id: Annotated[NullableStr, since(2), ignorable] = None
    controller_id: Annotated[BrokerId, since(1), ignorable] = -1
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Annotated[Int32, since(8), until(10)] = -2147483648
    error_code: Annotated[Int16, since(13), ignorable] = 0


@struct
class TopicRequest:
    name: TopicName


@struct
class Cursor:
    topic_name: TopicName
    partition_index: Int32


@message(api_key=75, direction="request", versions=(0, 0), flexible=0)
class DescribeTopicPartitionsRequest:
    """Request for a page of partitions (KIP-966)."""

    topics: list[TopicRequest]
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


@struct
class DescribeTopicPartitionsResponsePartition:
    """Leader and replicas, and those eligible to lead without in-sync ones (KIP-966)."""

    error_code: Int16
    partition_index: Int32
    leader_id: BrokerId
    leader_epoch: Annotated[Int32, ignorable] = -1
    replica_nodes: list[BrokerId]
    isr_nodes: list[BrokerId]
    eligible_leader_replicas: list[BrokerId] | None = None
    last_known_elr: list[BrokerId] | None = None
    offline_replicas: Annotated[list[BrokerId], ignorable]


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16
    name: Annotated[NullableStr, Entity("topicName")]
    topic_id: Annotated[Uuid, ignorable]
    is_internal: Annotated[Bool, ignorable] = False
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = -2147483648


@struct
class DescribeTopicPartitionsResponseCursor:
    topic_name: TopicName
    partition_index: Int32


@message(api_key=75, direction="response", versions=(0, 0), flexible=0)
class DescribeTopicPartitionsResponse:
    throttle_time_ms: Annotated[Int32, ignorable] = 0
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: DescribeTopicPartitionsResponseCursor | None = None
