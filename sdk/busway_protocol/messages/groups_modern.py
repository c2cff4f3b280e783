"""Consumer groups, with assignment by the coordinator (KIP-848)."""

from dataclasses import field
from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import (
    Bool,
    GroupId,
    Int8,
    Int16,
    Int32,
    NullableStr,
    Str,
    TopicName,
    Uuid,
    ignorable,
    since,
)


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]


@message(api_key=68, direction="request", versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest:
    """A member's subscription and owned partitions, null if unchanged.

    Epoch 0 joins, -1 leaves, -2 is a static member that leaves temporarily.
    """

    group_id: GroupId
    member_id: Str
    member_epoch: Int32
    instance_id: NullableStr = None
    rack_id: NullableStr = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[TopicName] | None = None
    subscribed_topic_regex: Annotated[NullableStr, since(1)] = None
    server_assignor: NullableStr = None
    topic_partitions: list[TopicPartitions] | None = None


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = field(default_factory=list)


@message(api_key=68, direction="response", versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableStr = None
    member_id: NullableStr = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None


@message(api_key=69, direction="request", versions=(0, 1), flexible=0)
class ConsumerGroupDescribeRequest:
    group_ids: list[GroupId]
    include_authorized_operations: Bool


@struct
class DescribedTopicPartitions:
    topic_id: Uuid
    topic_name: TopicName
    partitions: list[Int32]


@struct
class DescribedAssignment:
    topic_partitions: list[DescribedTopicPartitions] = field(default_factory=list)


@struct
class Member:
    """One member; `member_type` 0 is classic, 1 consumer."""

    member_id: Str
    instance_id: NullableStr = None
    rack_id: NullableStr = None
    member_epoch: Int32
    client_id: Str
    client_host: Str
    subscribed_topic_names: list[TopicName]
    subscribed_topic_regex: NullableStr = None
    assignment: DescribedAssignment
    target_assignment: DescribedAssignment
    member_type: Annotated[Int8, since(1), ignorable] = -1


@struct
class DescribedGroup:
    error_code: Int16
    error_message: NullableStr = None
    group_id: GroupId
    group_state: Str
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: Str
    members: list[Member]
    authorized_operations: Int32 = -2147483648


@message(api_key=69, direction="response", versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse:
    throttle_time_ms: Int32
    groups: list[DescribedGroup]
