"""Share groups: members acquire single records of shared partitions (KIP-932, KIP-1222)."""

from dataclasses import field
from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import (
    Bool,
    BrokerId,
    GroupId,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableGroupId,
    NullableStr,
    Records,
    Str,
    TopicName,
    Uuid,
    ignorable,
    since,
)


@message(api_key=76, direction="request", versions=(1, 1), flexible=0)
class ShareGroupHeartbeatRequest:
    """A member's subscription, null if unchanged; epoch 0 joins, -1 leaves."""

    group_id: GroupId
    member_id: Str
    member_epoch: Int32
    rack_id: NullableStr = None
    subscribed_topic_names: list[TopicName] | None = None


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = field(default_factory=list)


@message(api_key=76, direction="response", versions=(1, 1), flexible=0)
class ShareGroupHeartbeatResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableStr = None
    member_id: NullableStr = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None


@message(api_key=77, direction="request", versions=(1, 1), flexible=0)
class ShareGroupDescribeRequest:
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
    member_id: Str
    rack_id: NullableStr = None
    member_epoch: Int32
    client_id: Str
    client_host: Str
    subscribed_topic_names: list[TopicName]
    assignment: DescribedAssignment


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


@message(api_key=77, direction="response", versions=(1, 1), flexible=0)
class ShareGroupDescribeResponse:
    throttle_time_ms: Int32
    groups: list[DescribedGroup]


@struct
class AcknowledgementBatch:
    """Acknowledgements of a range, bounds included."""

    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8]


@struct
class FetchPartition:
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class FetchTopic:
    topic_id: Uuid
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    topic_id: Uuid
    partitions: list[Int32]


@message(api_key=78, direction="request", versions=(1, 2), flexible=0)
class ShareFetchRequest:
    """Request for unacquired records, and acknowledgements of earlier ones.

    `share_acquire_mode` 0 acquires whole batches, 1 at most `max_records`.
    """

    group_id: NullableGroupId = None
    member_id: NullableStr
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 2147483647
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Annotated[Int8, since(2), ignorable] = 0
    is_renew_ack: Annotated[Bool, since(2)] = False
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class AcquiredRecords:
    """An acquired range, bounds included, and its delivery count."""

    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


@struct
class FetchedPartition:
    partition_index: Int32
    error_code: Int16
    error_message: NullableStr = None
    acknowledge_error_code: Int16
    acknowledge_error_message: NullableStr = None
    current_leader: LeaderIdAndEpoch
    records: Records = None
    acquired_records: list[AcquiredRecords]


@struct
class ShareFetchableTopicResponse:
    topic_id: Uuid
    partitions: list[FetchedPartition]


@struct
class NodeEndpoint:
    node_id: BrokerId
    host: Str
    port: Int32
    rack: NullableStr = None


@message(api_key=78, direction="response", versions=(1, 2), flexible=0)
class ShareFetchResponse:
    """Records, acquired ranges, and their lock time in ms."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableStr = None
    acquisition_lock_timeout_ms: Int32
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]


@struct
class AcknowledgePartition:
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class AcknowledgeTopic:
    topic_id: Uuid
    partitions: list[AcknowledgePartition]


@message(api_key=79, direction="request", versions=(1, 2), flexible=0)
class ShareAcknowledgeRequest:
    """Acknowledgements: 0 gap, 1 accept, 2 release, 3 reject, 4 renew; one type per batch or per record."""

    group_id: NullableGroupId = None
    member_id: NullableStr
    share_session_epoch: Int32
    is_renew_ack: Annotated[Bool, since(2)] = False
    topics: list[AcknowledgeTopic]


@struct
class AcknowledgedPartition:
    partition_index: Int32
    error_code: Int16
    error_message: NullableStr = None
    current_leader: LeaderIdAndEpoch


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: Uuid
    partitions: list[AcknowledgedPartition]


@message(api_key=79, direction="response", versions=(1, 2), flexible=0)
class ShareAcknowledgeResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableStr = None
    acquisition_lock_timeout_ms: Annotated[Int32, since(2), ignorable] = 0
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]


@struct
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: TopicName
    partitions: list[Int32]


@struct
class DescribeShareGroupOffsetsRequestGroup:
    group_id: GroupId
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None


@message(api_key=90, direction="request", versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsRequest:
    """Request for start offsets of share groups; null topics for all."""

    groups: list[DescribeShareGroupOffsetsRequestGroup]


@struct
class DescribeShareGroupOffsetsResponsePartition:
    """Start offset of a partition; -1 if unknown."""

    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Annotated[Int64, since(1), ignorable] = -1
    error_code: Int16
    error_message: NullableStr = None


@struct
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: TopicName
    topic_id: Uuid
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


@struct
class DescribeShareGroupOffsetsResponseGroup:
    group_id: GroupId
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: Int16
    error_message: NullableStr = None


@message(api_key=90, direction="response", versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: Int32
    groups: list[DescribeShareGroupOffsetsResponseGroup]


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: Int32
    start_offset: Int64


@struct
class AlterShareGroupOffsetsRequestTopic:
    topic_name: TopicName
    partitions: list[AlterShareGroupOffsetsRequestPartition]


@message(api_key=91, direction="request", versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsRequest:
    group_id: GroupId
    topics: list[AlterShareGroupOffsetsRequestTopic]


@struct
class AlterShareGroupOffsetsResponsePartition:
    partition_index: Int32
    error_code: Int16
    error_message: NullableStr = None


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: TopicName
    topic_id: Uuid
    partitions: list[AlterShareGroupOffsetsResponsePartition]


@message(api_key=91, direction="response", versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableStr = None
    responses: list[AlterShareGroupOffsetsResponseTopic]


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: TopicName


@message(api_key=92, direction="request", versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsRequest:
    group_id: GroupId
    topics: list[DeleteShareGroupOffsetsRequestTopic]


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: TopicName
    topic_id: Uuid
    error_code: Int16
    error_message: NullableStr = None


@message(api_key=92, direction="response", versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableStr = None
    responses: list[DeleteShareGroupOffsetsResponseTopic]
