"""Consumer groups with client-side assignment, and their committed offsets.

Messages: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups, DeleteGroups, OffsetCommit, OffsetFetch, OffsetDelete. Layouts as in Kafka 4.3.1; the fields keep Kafka's names.
"""

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
    """Asks which broker coordinates a group or transaction; many at once from version 4 on (KIP-699)."""

    key: Annotated[Str, until(3)] = ""
    key_type: Annotated[Int8, since(1)] = 0
    coordinator_keys: Annotated[list[Str], since(4)] = field(default_factory=list)


@struct
class Coordinator:
    """The coordinator of one key, or why none is known."""

    key: Annotated[Str, since(4)] = ""
    node_id: Annotated[BrokerId, since(4)] = 0
    host: Annotated[Str, since(4)] = ""
    port: Annotated[Int32, since(4)] = 0
    error_code: Annotated[Int16, since(4)] = 0
    error_message: Annotated[NullableStr, since(4), ignorable] = ""


@message(api_key=10, direction="response", versions=(0, 6), flexible=3)
class FindCoordinatorResponse:
    """The coordinator of each key."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Annotated[Int16, until(3)] = 0
    error_message: Annotated[NullableStr, since(1), until(3), nullable_until(3), ignorable] = ""
    node_id: Annotated[BrokerId, until(3)] = 0
    host: Annotated[Str, until(3)] = ""
    port: Annotated[Int32, until(3)] = 0
    coordinators: Annotated[list[Coordinator], since(4)] = field(default_factory=list)


@struct
class JoinGroupRequestProtocol:
    """An assignor that the member can work with, and its subscription in that assignor's bytes."""

    name: Str
    metadata: Bytes


@message(api_key=11, direction="request", versions=(0, 9), flexible=6)
class JoinGroupRequest:
    """Asks to become or stay a member of a group."""

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
    """A member and its subscription; only the leader is told of them."""

    member_id: Str
    group_instance_id: Annotated[NullableStr, since(5), ignorable] = None
    metadata: Bytes


@message(api_key=11, direction="response", versions=(0, 9), flexible=6)
class JoinGroupResponse:
    """The new generation; the leader also gets every member's subscription."""

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
    """What one member is to read, in the assignor's bytes."""

    member_id: Str
    assignment: Bytes


@message(api_key=14, direction="request", versions=(0, 5), flexible=4)
class SyncGroupRequest:
    """The leader hands in the assignments; everyone else waits for theirs."""

    group_id: GroupId
    generation_id: Int32
    member_id: Str
    group_instance_id: Annotated[NullableStr, since(3)] = None
    protocol_type: Annotated[NullableStr, since(5), ignorable] = None
    protocol_name: Annotated[NullableStr, since(5), ignorable] = None
    assignments: list[SyncGroupRequestAssignment]


@message(api_key=14, direction="response", versions=(0, 5), flexible=4)
class SyncGroupResponse:
    """This member's assignment."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16
    protocol_type: Annotated[NullableStr, since(5), ignorable] = None
    protocol_name: Annotated[NullableStr, since(5), ignorable] = None
    assignment: Bytes


@message(api_key=12, direction="request", versions=(0, 4), flexible=4)
class HeartbeatRequest:
    """Tells the coordinator that a member is alive."""

    group_id: GroupId
    generation_id: Int32
    member_id: Str
    group_instance_id: Annotated[NullableStr, since(3)] = None


@message(api_key=12, direction="response", versions=(0, 4), flexible=4)
class HeartbeatResponse:
    """Whether the member may go on as it is."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16


@struct
class MemberIdentity:
    """A member to take out: by member id, or by instance id where it is static."""

    member_id: Annotated[Str, since(3)] = ""
    group_instance_id: Annotated[NullableStr, since(3)] = None
    reason: Annotated[NullableStr, since(5), ignorable] = None


@message(api_key=13, direction="request", versions=(0, 5), flexible=4)
class LeaveGroupRequest:
    """Takes one member, or from version 3 on several (KIP-345), out of a group."""

    group_id: GroupId
    member_id: Annotated[Str, until(2)] = ""
    members: Annotated[list[MemberIdentity], since(3)] = field(default_factory=list)


@struct
class MemberResponse:
    """Whether one member was taken out."""

    member_id: Annotated[Str, since(3)] = ""
    group_instance_id: Annotated[NullableStr, since(3)] = ""
    error_code: Annotated[Int16, since(3)] = 0


@message(api_key=13, direction="response", versions=(0, 5), flexible=4)
class LeaveGroupResponse:
    """The outcome for each member."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16
    members: Annotated[list[MemberResponse], since(3)] = field(default_factory=list)


@message(api_key=15, direction="request", versions=(0, 6), flexible=5)
class DescribeGroupsRequest:
    """Asks for the state and members of groups."""

    groups: list[GroupId]
    include_authorized_operations: Annotated[Bool, since(3)] = False


@struct
class DescribedGroupMember:
    """A member, where it connects from, its subscription and its assignment."""

    member_id: Str
    group_instance_id: Annotated[NullableStr, since(4), ignorable] = None
    client_id: Str
    client_host: Str
    member_metadata: Bytes
    member_assignment: Bytes


@struct
class DescribedGroup:
    """One group: its state, its protocol and its members."""

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
    """State, protocol and members of each group."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    groups: list[DescribedGroup]


@message(api_key=16, direction="request", versions=(0, 5), flexible=3)
class ListGroupsRequest:
    """Asks for the groups of one broker, by state and type."""

    states_filter: Annotated[list[Str], since(4)] = field(default_factory=list)
    types_filter: Annotated[list[Str], since(5)] = field(default_factory=list)


@struct
class ListedGroup:
    """The name, protocol, state and type of a group."""

    group_id: GroupId
    protocol_type: Str
    group_state: Annotated[Str, since(4), ignorable] = ""
    group_type: Annotated[Str, since(5), ignorable] = ""


@message(api_key=16, direction="response", versions=(0, 5), flexible=3)
class ListGroupsResponse:
    """The groups with their states."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16
    groups: list[ListedGroup]


@message(api_key=42, direction="request", versions=(0, 2), flexible=2)
class DeleteGroupsRequest:
    """Deletes groups without members (KIP-229)."""

    groups_names: list[GroupId]


@struct
class DeletableGroupResult:
    """Whether one group was deleted."""

    group_id: GroupId
    error_code: Int16


@message(api_key=42, direction="response", versions=(0, 2), flexible=2)
class DeleteGroupsResponse:
    """The outcome for each group."""

    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult]


@struct
class OffsetCommitRequestPartition:
    """The next offset to read of a partition, and a note of the reader's own."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(6), ignorable] = -1
    committed_metadata: NullableStr


@struct
class OffsetCommitRequestTopic:
    """A topic, by name up to version 9 and by id from 10 on, and how far it was read."""

    name: Annotated[TopicName, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    partitions: list[OffsetCommitRequestPartition]


@message(api_key=8, direction="request", versions=(2, 10), flexible=8)
class OffsetCommitRequest:
    """Stores how far a group has read."""

    group_id: GroupId
    generation_id_or_member_epoch: Annotated[Int32, since(1), ignorable] = -1
    member_id: Annotated[Str, since(1), ignorable]
    group_instance_id: Annotated[NullableStr, since(7)] = None
    retention_time_ms: Annotated[Int64, since(2), until(4), ignorable] = -1
    topics: list[OffsetCommitRequestTopic]


@struct
class OffsetCommitResponsePartition:
    """Whether the offset of one partition was stored."""

    partition_index: Int32
    error_code: Int16


@struct
class OffsetCommitResponseTopic:
    """The outcome for the partitions of one topic."""

    name: Annotated[TopicName, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    partitions: list[OffsetCommitResponsePartition]


@message(api_key=8, direction="response", versions=(2, 10), flexible=8)
class OffsetCommitResponse:
    """The outcome for each partition."""

    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    topics: list[OffsetCommitResponseTopic]


@struct
class OffsetFetchRequestTopic:
    """Partitions of one topic, in the versions that ask for a single group."""

    name: Annotated[TopicName, until(7)] = ""
    partition_indexes: Annotated[list[Int32], until(7)] = field(default_factory=list)


@struct
class OffsetFetchRequestTopics:
    """Partitions of one topic, in the versions that ask for many groups."""

    name: Annotated[TopicName, since(8), until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    partition_indexes: Annotated[list[Int32], since(8)] = field(default_factory=list)


@struct
class OffsetFetchRequestGroup:
    """A group and what to tell of it; null topics ask for all its offsets."""

    group_id: Annotated[GroupId, since(8)] = ""
    member_id: Annotated[NullableStr, since(9), ignorable] = None
    member_epoch: Annotated[Int32, since(9), ignorable] = -1
    topics: Annotated[list[OffsetFetchRequestTopics] | None, since(8)] = field(default_factory=list)


@message(api_key=9, direction="request", versions=(1, 10), flexible=6)
class OffsetFetchRequest:
    """Asks how far groups have read; many groups at once from version 8 on (KIP-709)."""

    group_id: Annotated[GroupId, until(7)] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, until(7), nullable_since(2), nullable_until(7)] = field(
        default_factory=list
    )
    groups: Annotated[list[OffsetFetchRequestGroup], since(8)] = field(default_factory=list)
    require_stable: Annotated[Bool, since(7)] = False


@struct
class OffsetFetchResponsePartition:
    """A committed offset, or -1; in the versions that ask for a single group."""

    partition_index: Annotated[Int32, until(7)] = 0
    committed_offset: Annotated[Int64, until(7)] = 0
    committed_leader_epoch: Annotated[Int32, since(5), until(7), ignorable] = -1
    metadata: Annotated[NullableStr, until(7), nullable_until(7)] = ""
    error_code: Annotated[Int16, until(7)] = 0


@struct
class OffsetFetchResponseTopic:
    """Committed offsets of one topic, in the versions that ask for a single group."""

    name: Annotated[TopicName, until(7)] = ""
    partitions: Annotated[list[OffsetFetchResponsePartition], until(7)] = field(default_factory=list)


@struct
class OffsetFetchResponsePartitions:
    """A committed offset, or -1; in the versions that ask for many groups."""

    partition_index: Annotated[Int32, since(8)] = 0
    committed_offset: Annotated[Int64, since(8)] = 0
    committed_leader_epoch: Annotated[Int32, since(8), ignorable] = -1
    metadata: Annotated[NullableStr, since(8)] = ""
    error_code: Annotated[Int16, since(8)] = 0


@struct
class OffsetFetchResponseTopics:
    """Committed offsets of one topic, in the versions that ask for many groups."""

    name: Annotated[TopicName, since(8), until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    partitions: Annotated[list[OffsetFetchResponsePartitions], since(8)] = field(default_factory=list)


@struct
class OffsetFetchResponseGroup:
    """The committed offsets of one group."""

    group_id: Annotated[GroupId, since(8)] = ""
    topics: Annotated[list[OffsetFetchResponseTopics], since(8)] = field(default_factory=list)
    error_code: Annotated[Int16, since(8)] = 0


@message(api_key=9, direction="response", versions=(1, 10), flexible=6)
class OffsetFetchResponse:
    """The committed offsets."""

    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], until(7)] = field(default_factory=list)
    error_code: Annotated[Int16, since(2), until(7), ignorable] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], since(8)] = field(default_factory=list)


@struct
class OffsetDeleteRequestPartition:
    """A partition whose committed offset is to go."""

    partition_index: Int32


@struct
class OffsetDeleteRequestTopic:
    """Partitions of one topic whose committed offsets are to go."""

    name: TopicName
    partitions: list[OffsetDeleteRequestPartition]


@message(api_key=47, direction="request", versions=(0, 0))
class OffsetDeleteRequest:
    """Deletes committed offsets of topics that the group no longer reads (KIP-496)."""

    group_id: GroupId
    topics: list[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteResponsePartition:
    """Whether the offset of one partition was deleted."""

    partition_index: Int32
    error_code: Int16


@struct
class OffsetDeleteResponseTopic:
    """The outcome for the partitions of one topic."""

    name: TopicName
    partitions: list[OffsetDeleteResponsePartition]


@message(api_key=47, direction="response", versions=(0, 0))
class OffsetDeleteResponse:
    """The outcome for each partition."""

    error_code: Int16
    throttle_time_ms: Annotated[Int32, ignorable] = 0
    topics: list[OffsetDeleteResponseTopic]
