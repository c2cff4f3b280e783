"""Share groups: members that take records of the same partitions one by one (KIP-932, KIP-1222).

Messages: ShareGroupHeartbeat, ShareGroupDescribe, ShareFetch, ShareAcknowledge, DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets. Layouts as in Kafka 4.3.1; the fields keep Kafka's names.
"""

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
    """What a member wants, null where nothing has changed; by epoch 0 it joins, by -1 it leaves."""

    group_id: GroupId
    member_id: Str
    member_epoch: Int32
    rack_id: NullableStr = None
    subscribed_topic_names: list[TopicName] | None = None


@struct
class TopicPartitions:
    """Partitions of a topic."""

    topic_id: Uuid
    partitions: list[Int32]


@struct
class Assignment:
    """What a member is to fetch from."""

    topic_partitions: list[TopicPartitions] = field(default_factory=list)


@message(api_key=76, direction="response", versions=(1, 1), flexible=0)
class ShareGroupHeartbeatResponse:
    """The epoch that the member is in, and the partitions to fetch from, null where they have not changed."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableStr = None
    member_id: NullableStr = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None


@message(api_key=77, direction="request", versions=(1, 1), flexible=0)
class ShareGroupDescribeRequest:
    """Asks what share groups look like."""

    group_ids: list[GroupId]
    include_authorized_operations: Bool


@struct
class DescribedTopicPartitions:
    """Partitions of a topic, with its name."""

    topic_id: Uuid
    topic_name: TopicName
    partitions: list[Int32]


@struct
class DescribedAssignment:
    """What a member has."""

    topic_partitions: list[DescribedTopicPartitions] = field(default_factory=list)


@struct
class Member:
    """One member."""

    member_id: Str
    rack_id: NullableStr = None
    member_epoch: Int32
    client_id: Str
    client_host: Str
    subscribed_topic_names: list[TopicName]
    assignment: DescribedAssignment


@struct
class DescribedGroup:
    """One group."""

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
    """What share groups look like."""

    throttle_time_ms: Int32
    groups: list[DescribedGroup]


@struct
class AcknowledgementBatch:
    """What became of the records of a range, bounds included."""

    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8]


@struct
class FetchPartition:
    """A partition to fetch from."""

    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class FetchTopic:
    """The partitions of one topic that are wanted."""

    topic_id: Uuid
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    """What leaves the session."""

    topic_id: Uuid
    partitions: list[Int32]


@message(api_key=78, direction="request", versions=(1, 2), flexible=0)
class ShareFetchRequest:
    """Asks for records that nobody else has, and tells what became of earlier ones; `share_acquire_mode` 0 takes whole batches, 1 no more than `max_records`."""

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
    """Who leads a partition."""

    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class AcquiredRecords:
    """A range, bounds included, that the member has acquired, and for which time it is delivered."""

    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


@struct
class FetchedPartition:
    """Records of one partition, and what became of its acknowledgements."""

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
    """Records of one topic."""

    topic_id: Uuid
    partitions: list[FetchedPartition]


@struct
class NodeEndpoint:
    """Where a leader is reached."""

    node_id: BrokerId
    host: Str
    port: Int32
    rack: NullableStr = None


@message(api_key=78, direction="response", versions=(1, 2), flexible=0)
class ShareFetchResponse:
    """Records, which of them the member has acquired, and for how many ms."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableStr = None
    acquisition_lock_timeout_ms: Int32
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]


@struct
class AcknowledgePartition:
    """What became of records of a partition."""

    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class AcknowledgeTopic:
    """What became of records of a topic."""

    topic_id: Uuid
    partitions: list[AcknowledgePartition]


@message(api_key=79, direction="request", versions=(1, 2), flexible=0)
class ShareAcknowledgeRequest:
    """What became of records: 0 gap, 1 accept, 2 release, 3 reject, 4 renew; one type for all of a batch, or one for each."""

    group_id: NullableGroupId = None
    member_id: NullableStr
    share_session_epoch: Int32
    is_renew_ack: Annotated[Bool, since(2)] = False
    topics: list[AcknowledgeTopic]


@struct
class AcknowledgedPartition:
    """Whether that was taken."""

    partition_index: Int32
    error_code: Int16
    error_message: NullableStr = None
    current_leader: LeaderIdAndEpoch


@struct
class ShareAcknowledgeTopicResponse:
    """One topic."""

    topic_id: Uuid
    partitions: list[AcknowledgedPartition]


@message(api_key=79, direction="response", versions=(1, 2), flexible=0)
class ShareAcknowledgeResponse:
    """Whether that was taken."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableStr = None
    acquisition_lock_timeout_ms: Annotated[Int32, since(2), ignorable] = 0
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]


@struct
class DescribeShareGroupOffsetsRequestTopic:
    """A topic that is asked about."""

    topic_name: TopicName
    partitions: list[Int32]


@struct
class DescribeShareGroupOffsetsRequestGroup:
    """A group that is asked about."""

    group_id: GroupId
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None


@message(api_key=90, direction="request", versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsRequest:
    """Asks from where share groups go on; null topics for all."""

    groups: list[DescribeShareGroupOffsetsRequestGroup]


@struct
class DescribeShareGroupOffsetsResponsePartition:
    """From where a partition goes on; -1 where that is not known."""

    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Annotated[Int64, since(1), ignorable] = -1
    error_code: Int16
    error_message: NullableStr = None


@struct
class DescribeShareGroupOffsetsResponseTopic:
    """One topic."""

    topic_name: TopicName
    topic_id: Uuid
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


@struct
class DescribeShareGroupOffsetsResponseGroup:
    """One group."""

    group_id: GroupId
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: Int16
    error_message: NullableStr = None


@message(api_key=90, direction="response", versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsResponse:
    """From where share groups go on."""

    throttle_time_ms: Int32
    groups: list[DescribeShareGroupOffsetsResponseGroup]


@struct
class AlterShareGroupOffsetsRequestPartition:
    """From where a partition is to go on."""

    partition_index: Int32
    start_offset: Int64


@struct
class AlterShareGroupOffsetsRequestTopic:
    """One topic."""

    topic_name: TopicName
    partitions: list[AlterShareGroupOffsetsRequestPartition]


@message(api_key=91, direction="request", versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsRequest:
    """Sets from where a group without members goes on."""

    group_id: GroupId
    topics: list[AlterShareGroupOffsetsRequestTopic]


@struct
class AlterShareGroupOffsetsResponsePartition:
    """Whether a partition was set."""

    partition_index: Int32
    error_code: Int16
    error_message: NullableStr = None


@struct
class AlterShareGroupOffsetsResponseTopic:
    """One topic."""

    topic_name: TopicName
    topic_id: Uuid
    partitions: list[AlterShareGroupOffsetsResponsePartition]


@message(api_key=91, direction="response", versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsResponse:
    """What was set."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableStr = None
    responses: list[AlterShareGroupOffsetsResponseTopic]


@struct
class DeleteShareGroupOffsetsRequestTopic:
    """A topic to forget."""

    topic_name: TopicName


@message(api_key=92, direction="request", versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsRequest:
    """Has a group without members forget topics."""

    group_id: GroupId
    topics: list[DeleteShareGroupOffsetsRequestTopic]


@struct
class DeleteShareGroupOffsetsResponseTopic:
    """Whether a topic is forgotten."""

    topic_name: TopicName
    topic_id: Uuid
    error_code: Int16
    error_message: NullableStr = None


@message(api_key=92, direction="response", versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsResponse:
    """What is forgotten."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableStr = None
    responses: list[DeleteShareGroupOffsetsResponseTopic]
