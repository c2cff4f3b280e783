"""Reading record batches."""

from dataclasses import field
from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import (
    ZERO_UUID,
    BrokerId,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableStr,
    ProducerId,
    Records,
    Str,
    TopicName,
    Uuid,
    ignorable,
    since,
    tag,
    until,
)


@struct
class ReplicaState:
    """Follower and its broker epoch (KIP-903); -1 for consumers."""

    replica_id: Annotated[BrokerId, since(15)] = -1
    replica_epoch: Annotated[Int64, since(15)] = -1


@struct
class FetchPartition:
    partition: Int32
    current_leader_epoch: Annotated[Int32, since(9), ignorable] = -1
    fetch_offset: Int64
    last_fetched_epoch: Annotated[Int32, since(12)] = -1
    log_start_offset: Annotated[Int64, since(5), ignorable] = -1
    partition_max_bytes: Int32
    replica_directory_id: Annotated[Uuid, since(17), tag(0), ignorable] = ZERO_UUID
    high_watermark: Annotated[Int64, since(18), tag(1), ignorable] = 9223372036854775807


@struct
class FetchTopic:
    topic: Annotated[TopicName, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO_UUID
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    """Partitions to remove from the fetch session (KIP-227)."""

    topic: Annotated[TopicName, since(7), until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO_UUID
    partitions: Annotated[list[Int32], since(7)] = field(default_factory=list)


@message(api_key=1, direction="request", versions=(4, 18), flexible=12)
class FetchRequest:
    """Request for batches, with a maximum wait; from version 7 on only changes in a session (KIP-227)."""

    cluster_id: Annotated[NullableStr, since(12), tag(0), ignorable] = None
    replica_id: Annotated[BrokerId, until(14)] = -1
    replica_state: Annotated[ReplicaState, since(15), tag(1)] = field(default_factory=ReplicaState)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Annotated[Int32, since(3), ignorable] = 0x7FFFFFFF
    isolation_level: Annotated[Int8, since(4), ignorable] = 0
    session_id: Annotated[Int32, since(7), ignorable] = 0
    session_epoch: Annotated[Int32, since(7), ignorable] = -1
    topics: list[FetchTopic]
    forgotten_topics_data: Annotated[list[ForgottenTopic], since(7)] = field(default_factory=list)
    rack_id: Annotated[Str, since(11), ignorable] = ""


@struct
class EpochEndOffset:
    """Where the reader's log diverges from the leader's and must be truncated (KIP-595)."""

    epoch: Annotated[Int32, since(12)] = -1
    end_offset: Annotated[Int64, since(12)] = -1


@struct
class LeaderIdAndEpoch:
    """Current leader (KIP-951)."""

    leader_id: Annotated[BrokerId, since(12)] = -1
    leader_epoch: Annotated[Int32, since(12)] = -1


@struct
class SnapshotId:
    """Snapshot to load if the log starts later; metadata log only."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


@struct
class AbortedTransaction:
    """A producer whose records from this offset to its next marker are aborted."""

    producer_id: Annotated[ProducerId, since(4)]
    first_offset: Annotated[Int64, since(4)]


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Annotated[Int64, since(4), ignorable] = -1
    log_start_offset: Annotated[Int64, since(5), ignorable] = -1
    diverging_epoch: Annotated[EpochEndOffset, since(12), tag(0)] = field(default_factory=EpochEndOffset)
    current_leader: Annotated[LeaderIdAndEpoch, since(12), tag(1)] = field(default_factory=LeaderIdAndEpoch)
    snapshot_id: Annotated[SnapshotId, since(12), tag(2)] = field(default_factory=SnapshotId)
    aborted_transactions: Annotated[list[AbortedTransaction] | None, since(4), ignorable]
    preferred_read_replica: Annotated[BrokerId, since(11)] = -1
    records: Records = None


@struct
class FetchableTopicResponse:
    topic: Annotated[TopicName, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO_UUID
    partitions: list[PartitionData]


@struct
class NodeEndpoint:
    node_id: Annotated[BrokerId, since(16)] = 0
    host: Annotated[Str, since(16)] = ""
    port: Annotated[Int32, since(16)] = 0
    rack: Annotated[NullableStr, since(16)] = None


@message(api_key=1, direction="response", versions=(4, 18), flexible=12)
class FetchResponse:
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Annotated[Int16, since(7), ignorable] = 0
    session_id: Annotated[Int32, since(7)] = 0
    responses: list[FetchableTopicResponse]
    node_endpoints: Annotated[list[NodeEndpoint], since(16), tag(0)] = field(default_factory=list)
