"""Offsets by timestamp or epoch, and deletion of records."""

from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import BrokerId, Int8, Int16, Int32, Int64, TopicName, ignorable, since


@struct
class ListOffsetsPartition:
    """A partition and the requested timestamp: -1 end, -2 start, -3 largest timestamp."""

    partition_index: Int32
    current_leader_epoch: Annotated[Int32, since(4), ignorable] = -1
    timestamp: Int64


@struct
class ListOffsetsTopic:
    name: TopicName
    partitions: list[ListOffsetsPartition]


@message(api_key=2, direction="request", versions=(1, 11), flexible=6)
class ListOffsetsRequest:
    replica_id: BrokerId
    isolation_level: Annotated[Int8, since(2)] = 0
    topics: list[ListOffsetsTopic]
    timeout_ms: Annotated[Int32, since(10), ignorable] = 0


@struct
class ListOffsetsPartitionResponse:
    """First offset at or after the timestamp, or -1."""

    partition_index: Int32
    error_code: Int16
    timestamp: Annotated[Int64, since(1)] = -1
    offset: Annotated[Int64, since(1)] = -1
    leader_epoch: Annotated[Int32, since(4)] = -1


@struct
class ListOffsetsTopicResponse:
    name: TopicName
    partitions: list[ListOffsetsPartitionResponse]


@message(api_key=2, direction="response", versions=(1, 11), flexible=6)
class ListOffsetsResponse:
    throttle_time_ms: Annotated[Int32, since(2), ignorable] = 0
    topics: list[ListOffsetsTopicResponse]


@struct
class OffsetForLeaderPartition:
    partition: Int32
    current_leader_epoch: Annotated[Int32, since(2), ignorable] = -1
    leader_epoch: Int32


@struct
class OffsetForLeaderTopic:
    topic: TopicName
    partitions: list[OffsetForLeaderPartition]


@message(api_key=23, direction="request", versions=(2, 4), flexible=4)
class OffsetForLeaderEpochRequest:
    """Request for the ends of leader epochs, which detects truncation (KIP-320)."""

    replica_id: Annotated[BrokerId, since(3), ignorable] = -2
    topics: list[OffsetForLeaderTopic]


@struct
class EpochEndOffset:
    """The largest epoch up to the requested one, and the offset behind its last record."""

    error_code: Int16
    partition: Int32
    leader_epoch: Annotated[Int32, since(1), ignorable] = -1
    end_offset: Int64 = -1


@struct
class OffsetForLeaderTopicResult:
    topic: TopicName
    partitions: list[EpochEndOffset]


@message(api_key=23, direction="response", versions=(2, 4), flexible=4)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Annotated[Int32, since(2), ignorable] = 0
    topics: list[OffsetForLeaderTopicResult]


@struct
class DeleteRecordsPartition:
    partition_index: Int32
    offset: Int64


@struct
class DeleteRecordsTopic:
    name: TopicName
    partitions: list[DeleteRecordsPartition]


@message(api_key=21, direction="request", versions=(0, 2), flexible=2)
class DeleteRecordsRequest:
    """Deletion of records before an offset; -1 is the high watermark (KIP-107)."""

    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


@struct
class DeleteRecordsPartitionResult:
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


@struct
class DeleteRecordsTopicResult:
    name: TopicName
    partitions: list[DeleteRecordsPartitionResult]


@message(api_key=21, direction="response", versions=(0, 2), flexible=2)
class DeleteRecordsResponse:
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult]
