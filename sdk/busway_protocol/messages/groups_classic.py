"""Classic groups, with assignment by clients, and committed offsets."""

from dataclasses import field
from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import (
    ZERO_UUID,
    Bool,
    BrokerId,
    Bytes,
    GroupId,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableStr,
    Str,
    TopicName,
    Uuid,
    ignorable,
    nullable_since,
    nullable_until,
    since,
    until,
)


@message(api_key=10, direction="request", versions=(0, 6), flexible=3)
class FindCoordinatorRequest:
    """Request for the coordinator of a group or transaction; of many from version 4 on (KIP-699)."""

    key: Annotated[Str, until(3)] = ""
    key_type: Annotated[Int8, since(1)] = 0
    coordinator_keys: Annotated[list[Str], since(4)] = field(default_factory=list)


@struct
class Coordinator:
    key: Annotated[Str, since(4)] = ""
    node_id: Annotated[BrokerId, since(4)] = 0
    host: Annotated[Str, since(4)] = ""
    port: Annotated[Int32, since(4)] = 0
    error_code: Annotated[Int16, since(4)] = 0
    error_message: Annotated[NullableStr, since(4), ignorable] = ""


@message(api_key=10, direction="response", versions=(0, 6), flexible=3)
class FindCoordinatorResponse:
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Annotated[Int16, until(3)] = 0
    error_message: Annotated[NullableStr, since(1), until(3), nullable_until(3), ignorable] = ""
    node_id: Annotated[BrokerId, until(3)] = 0
    host: Annotated[Str, until(3)] = ""
    port: Annotated[Int32, until(3)] = 0
    coordinators: Annotated[list[Coordinator], since(4)] = field(default_factory=list)


@struct
class JoinGroupRequestProtocol:
    name: Str
    metadata: Bytes


@message(api_key=11, direction="request", versions=(0, 9), flexible=6)
class JoinGroupRequest:
    group_id: GroupId
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, since(1), ignorable] = -1
    member_id: Str
    group_instance_id: Annotated[NullableStr, since(5)] = None
    protocol_type: Str
    protocols: list[JoinGroupRequestProtocol]
    reason: Annotated[NullableStr, since(8), ignorable] = None


@struct
class JoinGroupResponseMember:
    member_id: Str
    group_instance_id: Annotated[NullableStr, since(5), ignorable] = None
    metadata: Bytes


@message(api_key=11, direction="response", versions=(0, 9), flexible=6)
class JoinGroupResponse:
    """New generation; for the leader also all subscriptions."""

    throttle_time_ms: Annotated[Int32, since(2), ignorable] = 0
    error_code: Int16
    generation_id: Int32 = -1
    protocol_type: Annotated[NullableStr, since(7), ignorable] = None
    protocol_name: Annotated[NullableStr, nullable_since(7)]
    leader: Str
    skip_assignment: Annotated[Bool, since(9)] = False
    member_id: Str
    members: list[JoinGroupResponseMember]


@struct
class SyncGroupRequestAssignment:
    member_id: Str
    assignment: Bytes


@message(api_key=14, direction="request", versions=(0, 5), flexible=4)
class SyncGroupRequest:
    """Assignments from the leader; empty from others, which wait for theirs."""

    group_id: GroupId
    generation_id: Int32
    member_id: Str
    group_instance_id: Annotated[NullableStr, since(3)] = None
    protocol_type: Annotated[NullableStr, since(5), ignorable] = None
    protocol_name: Annotated[NullableStr, since(5), ignorable] = None
    assignments: list[SyncGroupRequestAssignment]


@message(api_key=14, direction="response", versions=(0, 5), flexible=4)
class SyncGroupResponse:
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16
    protocol_type: Annotated[NullableStr, since(5), ignorable] = None
    protocol_name: Annotated[NullableStr, since(5), ignorable] = None
    assignment: Bytes


@message(api_key=12, direction="request", versions=(0, 4), flexible=4)
class HeartbeatRequest:
    group_id: GroupId
    generation_id: Int32
    member_id: Str
    group_instance_id: Annotated[NullableStr, since(3)] = None


@message(api_key=12, direction="response", versions=(0, 4), flexible=4)
class HeartbeatResponse:
    """Whether the member must rejoin."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16


@struct
class MemberIdentity:
    """A member to remove: by member id, or instance id if static."""

    member_id: Annotated[Str, since(3)] = ""
    group_instance_id: Annotated[NullableStr, since(3)] = None
    reason: Annotated[NullableStr, since(5), ignorable] = None


@message(api_key=13, direction="request", versions=(0, 5), flexible=4)
class LeaveGroupRequest:
    """Removal of one member, from version 3 on of several (KIP-345)."""

    group_id: GroupId
    member_id: Annotated[Str, until(2)] = ""
    members: Annotated[list[MemberIdentity], since(3)] = field(default_factory=list)


@struct
class MemberResponse:
    member_id: Annotated[Str, since(3)] = ""
    group_instance_id: Annotated[NullableStr, since(3)] = ""
    error_code: Annotated[Int16, since(3)] = 0


@message(api_key=13, direction="response", versions=(0, 5), flexible=4)
class LeaveGroupResponse:
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16
    members: Annotated[list[MemberResponse], since(3)] = field(default_factory=list)


@message(api_key=15, direction="request", versions=(0, 6), flexible=5)
class DescribeGroupsRequest:
    groups: list[GroupId]
    include_authorized_operations: Annotated[Bool, since(3)] = False


@struct
class DescribedGroupMember:
    member_id: Str
    group_instance_id: Annotated[NullableStr, since(4), ignorable] = None
    client_id: Str
    client_host: Str
    member_metadata: Bytes
    member_assignment: Bytes


@struct
class DescribedGroup:
    error_code: Int16
    error_message: Annotated[NullableStr, since(6)] = None
    group_id: GroupId
    group_state: Str
    protocol_type: Str
    protocol_data: Str
    members: list[DescribedGroupMember]
    authorized_operations: Annotated[Int32, since(3)] = -2147483648


@message(api_key=15, direction="response", versions=(0, 6), flexible=5)
class DescribeGroupsResponse:
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    groups: list[DescribedGroup]


@message(api_key=16, direction="request", versions=(0, 5), flexible=3)
class ListGroupsRequest:
    states_filter: Annotated[list[Str], since(4)] = field(default_factory=list)
    types_filter: Annotated[list[Str], since(5)] = field(default_factory=list)


@struct
class ListedGroup:
    group_id: GroupId
    protocol_type: Str
    group_state: Annotated[Str, since(4), ignorable] = ""
    group_type: Annotated[Str, since(5), ignorable] = ""


@message(api_key=16, direction="response", versions=(0, 5), flexible=3)
class ListGroupsResponse:
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16
    groups: list[ListedGroup]


@message(api_key=42, direction="request", versions=(0, 2), flexible=2)
class DeleteGroupsRequest:
    """Deletion of groups without members (KIP-229)."""

    groups_names: list[GroupId]


@struct
class DeletableGroupResult:
    group_id: GroupId
    error_code: Int16


@message(api_key=42, direction="response", versions=(0, 2), flexible=2)
class DeleteGroupsResponse:
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult]


@struct
class OffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(6), ignorable] = -1
    committed_metadata: NullableStr


@struct
class OffsetCommitRequestTopic:
    """By name up to version 9, by id from 10 on."""

    name: Annotated[TopicName, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    partitions: list[OffsetCommitRequestPartition]


@message(api_key=8, direction="request", versions=(2, 10), flexible=8)
class OffsetCommitRequest:
    group_id: GroupId
    generation_id_or_member_epoch: Annotated[Int32, since(1), ignorable] = -1
    member_id: Annotated[Str, since(1), ignorable]
    group_instance_id: Annotated[NullableStr, since(7)] = None
    retention_time_ms: Annotated[Int64, since(2), until(4), ignorable] = -1
    topics: list[OffsetCommitRequestTopic]


@struct
class OffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class OffsetCommitResponseTopic:
    name: Annotated[TopicName, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    partitions: list[OffsetCommitResponsePartition]


@message(api_key=8, direction="response", versions=(2, 10), flexible=8)
class OffsetCommitResponse:
    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    topics: list[OffsetCommitResponseTopic]


@struct
class OffsetFetchRequestTopic:
    """Topic in single-group versions."""

    name: Annotated[TopicName, until(7)] = ""
    partition_indexes: Annotated[list[Int32], until(7)] = field(default_factory=list)


@struct
class OffsetFetchRequestTopics:
    """Topic in multi-group versions."""

    name: Annotated[TopicName, since(8), until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    partition_indexes: Annotated[list[Int32], since(8)] = field(default_factory=list)


@struct
class OffsetFetchRequestGroup:
    """Null topics request all."""

    group_id: Annotated[GroupId, since(8)] = ""
    member_id: Annotated[NullableStr, since(9), ignorable] = None
    member_epoch: Annotated[Int32, since(9), ignorable] = -1
    topics: Annotated[list[OffsetFetchRequestTopics] | None, since(8)] = field(default_factory=list)


@message(api_key=9, direction="request", versions=(1, 10), flexible=6)
class OffsetFetchRequest:
    """Request for committed offsets; of many groups from version 8 on (KIP-709)."""

    group_id: Annotated[GroupId, until(7)] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, until(7), nullable_since(2), nullable_until(7)] = field(
        default_factory=list
    )
    groups: Annotated[list[OffsetFetchRequestGroup], since(8)] = field(default_factory=list)
    require_stable: Annotated[Bool, since(7)] = False


@struct
class OffsetFetchResponsePartition:
    """A committed offset, or -1; in single-group versions."""

    partition_index: Annotated[Int32, until(7)] = 0
    committed_offset: Annotated[Int64, until(7)] = 0
    committed_leader_epoch: Annotated[Int32, since(5), until(7), ignorable] = -1
    metadata: Annotated[NullableStr, until(7), nullable_until(7)] = ""
    error_code: Annotated[Int16, until(7)] = 0


@struct
class OffsetFetchResponseTopic:
    """Topic in single-group versions."""

    name: Annotated[TopicName, until(7)] = ""
    partitions: Annotated[list[OffsetFetchResponsePartition], until(7)] = field(default_factory=list)


@struct
class OffsetFetchResponsePartitions:
    """A committed offset, or -1; in multi-group versions."""

    partition_index: Annotated[Int32, since(8)] = 0
    committed_offset: Annotated[Int64, since(8)] = 0
    committed_leader_epoch: Annotated[Int32, since(8), ignorable] = -1
    metadata: Annotated[NullableStr, since(8)] = ""
    error_code: Annotated[Int16, since(8)] = 0


@struct
class OffsetFetchResponseTopics:
    """Topic in multi-group versions."""

    name: Annotated[TopicName, since(8), until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    partitions: Annotated[list[OffsetFetchResponsePartitions], since(8)] = field(default_factory=list)


@struct
class OffsetFetchResponseGroup:
    group_id: Annotated[GroupId, since(8)] = ""
    topics: Annotated[list[OffsetFetchResponseTopics], since(8)] = field(default_factory=list)
    error_code: Annotated[Int16, since(8)] = 0


@message(api_key=9, direction="response", versions=(1, 10), flexible=6)
class OffsetFetchResponse:
    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], until(7)] = field(default_factory=list)
    error_code: Annotated[Int16, since(2), until(7), ignorable] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], since(8)] = field(default_factory=list)


@struct
class OffsetDeleteRequestPartition:
    partition_index: Int32


@struct
class OffsetDeleteRequestTopic:
    name: TopicName
    partitions: list[OffsetDeleteRequestPartition]


@message(api_key=47, direction="request", versions=(0, 0))
class OffsetDeleteRequest:
    """Deletion of committed offsets of unsubscribed topics (KIP-496)."""

    group_id: GroupId
    topics: list[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class OffsetDeleteResponseTopic:
    name: TopicName
    partitions: list[OffsetDeleteResponsePartition]


@message(api_key=47, direction="response", versions=(0, 0))
class OffsetDeleteResponse:
    error_code: Int16
    throttle_time_ms: Annotated[Int32, ignorable] = 0
    topics: list[OffsetDeleteResponseTopic]
