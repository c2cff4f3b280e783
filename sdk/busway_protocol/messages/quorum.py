"""The quorum of the metadata log."""

from dataclasses import field
from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import (
    ZERO_UUID,
    Bool,
    BrokerId,
    Int16,
    Int32,
    Int64,
    NullableStr,
    Str,
    TopicName,
    UInt16,
    Uuid,
    ignorable,
    since,
    tag,
    until,
)


@struct
class VotePartition:
    """Candidate of a log, its epoch and log end; `pre_vote` only requests a non-binding vote (KIP-996)."""

    partition_index: Int32
    replica_epoch: Int32
    replica_id: BrokerId
    replica_directory_id: Annotated[Uuid, since(1), ignorable] = ZERO_UUID
    voter_directory_id: Annotated[Uuid, since(1), ignorable] = ZERO_UUID
    last_offset_epoch: Int32
    last_offset: Int64
    pre_vote: Annotated[Bool, since(2)] = False


@struct
class VoteTopic:
    topic_name: TopicName
    partitions: list[VotePartition]


@message(api_key=52, direction="request", versions=(0, 2), flexible=0)
class VoteRequest:
    """Request for a vote (KIP-595), with the voter's directory from version 1 on (KIP-853)."""

    cluster_id: NullableStr = None
    voter_id: Annotated[BrokerId, since(1), ignorable] = -1
    topics: list[VoteTopic]


@struct
class QuorumNodeEndpoint:
    node_id: Annotated[BrokerId, since(1)]
    host: Annotated[Str, since(1)]
    port: Annotated[UInt16, since(1)]


@struct
class VotePartitionResult:
    """Whether the vote is granted, and the leader known to the voter, or -1."""

    partition_index: Int32
    error_code: Int16
    leader_id: BrokerId
    leader_epoch: Int32
    vote_granted: Bool


@struct
class VoteTopicResult:
    topic_name: TopicName
    partitions: list[VotePartitionResult]


@message(api_key=52, direction="response", versions=(0, 2), flexible=0)
class VoteResponse:
    error_code: Int16
    topics: list[VoteTopicResult]
    node_endpoints: Annotated[list[QuorumNodeEndpoint], since(1), tag(0)] = field(default_factory=list)


@struct
class LeaderEndpoint:
    name: Annotated[Str, since(1)]
    host: Annotated[Str, since(1)]
    port: Annotated[UInt16, since(1)]


@struct
class BeginEpochPartition:
    partition_index: Int32
    voter_directory_id: Annotated[Uuid, since(1), ignorable] = ZERO_UUID
    leader_id: BrokerId
    leader_epoch: Int32


@struct
class BeginEpochTopic:
    topic_name: TopicName
    partitions: list[BeginEpochPartition]


@message(api_key=53, direction="request", versions=(0, 1), flexible=1)
class BeginQuorumEpochRequest:
    """Notification of a voter by the new leader, repeated until it fetches (KIP-595)."""

    cluster_id: NullableStr = None
    voter_id: Annotated[BrokerId, since(1), ignorable] = -1
    topics: list[BeginEpochTopic]
    leader_endpoints: Annotated[list[LeaderEndpoint], since(1), ignorable] = field(default_factory=list)


@struct
class EpochPartitionResult:
    partition_index: Int32
    error_code: Int16
    leader_id: BrokerId
    leader_epoch: Int32


@struct
class EpochTopicResult:
    topic_name: TopicName
    partitions: list[EpochPartitionResult]


@message(api_key=53, direction="response", versions=(0, 1), flexible=1)
class BeginQuorumEpochResponse:
    error_code: Int16
    topics: list[EpochTopicResult]
    node_endpoints: Annotated[list[QuorumNodeEndpoint], since(1), tag(0)] = field(default_factory=list)


@struct
class PreferredCandidate:
    candidate_id: Annotated[BrokerId, since(1)]
    candidate_directory_id: Annotated[Uuid, since(1)]


@struct
class EndEpochPartition:
    """Resigning leader of a log, and successors, longest log first."""

    partition_index: Int32
    leader_id: BrokerId
    leader_epoch: Int32
    preferred_successors: Annotated[list[Int32], until(0), ignorable] = field(default_factory=list)
    preferred_candidates: Annotated[list[PreferredCandidate], since(1), ignorable] = field(default_factory=list)


@struct
class EndEpochTopic:
    topic_name: TopicName
    partitions: list[EndEpochPartition]


@message(api_key=54, direction="request", versions=(0, 1), flexible=1)
class EndQuorumEpochRequest:
    """Resignation of a leader, which saves voters the election timeout (KIP-595)."""

    cluster_id: NullableStr = None
    topics: list[EndEpochTopic]
    leader_endpoints: Annotated[list[LeaderEndpoint], since(1), ignorable] = field(default_factory=list)


@message(api_key=54, direction="response", versions=(0, 1), flexible=1)
class EndQuorumEpochResponse:
    error_code: Int16
    topics: list[EpochTopicResult]
    node_endpoints: Annotated[list[QuorumNodeEndpoint], since(1), tag(0)] = field(default_factory=list)


@struct
class PartitionQuery:
    partition_index: Int32


@struct
class TopicQuery:
    topic_name: TopicName
    partitions: list[PartitionQuery]


@message(api_key=55, direction="request", versions=(0, 2), flexible=0)
class DescribeQuorumRequest:
    """Request for voters and their log ends (KIP-595)."""

    topics: list[TopicQuery]


@struct
class ReplicaState:
    """One replica: log end, and the times of its last fetch and of catching up, in ms since 1970 (KIP-836)."""

    replica_id: BrokerId
    replica_directory_id: Annotated[Uuid, since(2)] = ZERO_UUID
    log_end_offset: Int64
    last_fetch_timestamp: Annotated[Int64, since(1), ignorable] = -1
    last_caught_up_timestamp: Annotated[Int64, since(1), ignorable] = -1


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: Annotated[NullableStr, since(2), ignorable] = ""
    leader_id: BrokerId
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


@struct
class TopicData:
    topic_name: TopicName
    partitions: list[PartitionData]


@struct
class Listener:
    name: Annotated[Str, since(2)]
    host: Annotated[Str, since(2)]
    port: Annotated[UInt16, since(2)]


@struct
class Node:
    node_id: Annotated[BrokerId, since(2)]
    listeners: Annotated[list[Listener], since(2)]


@message(api_key=55, direction="response", versions=(0, 2), flexible=0)
class DescribeQuorumResponse:
    error_code: Int16
    error_message: Annotated[NullableStr, since(2), ignorable] = ""
    topics: list[TopicData]
    nodes: Annotated[list[Node], since(2)] = field(default_factory=list)
