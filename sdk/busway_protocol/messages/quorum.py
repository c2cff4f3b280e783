"""The quorum that keeps the cluster's metadata.

Messages: Vote, BeginQuorumEpoch, EndQuorumEpoch, DescribeQuorum. Layouts as in Kafka 4.3.1; the fields keep Kafka's names.
"""

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
    """Who wants to lead a log, in which epoch, and how far its own copy goes; `pre_vote` only asks who would (KIP-996)."""

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
    """One topic."""

    topic_name: TopicName
    partitions: list[VotePartition]


@message(api_key=52, direction="request", versions=(0, 2), flexible=0)
class VoteRequest:
    """Asks a voter for its vote (KIP-595), named with its directory from version 1 on (KIP-853)."""

    cluster_id: NullableStr = None
    voter_id: Annotated[BrokerId, since(1), ignorable] = -1
    topics: list[VoteTopic]


@struct
class QuorumNodeEndpoint:
    """The address of a leader that a response names."""

    node_id: Annotated[BrokerId, since(1)]
    host: Annotated[Str, since(1)]
    port: Annotated[UInt16, since(1)]


@struct
class VotePartitionResult:
    """Whether the vote is given, and whom the voter knows as leader: -1 for nobody."""

    partition_index: Int32
    error_code: Int16
    leader_id: BrokerId
    leader_epoch: Int32
    vote_granted: Bool


@struct
class VoteTopicResult:
    """One topic."""

    topic_name: TopicName
    partitions: list[VotePartitionResult]


@message(api_key=52, direction="response", versions=(0, 2), flexible=0)
class VoteResponse:
    """A voter's answer."""

    error_code: Int16
    topics: list[VoteTopicResult]
    node_endpoints: Annotated[list[QuorumNodeEndpoint], since(1), tag(0)] = field(default_factory=list)


@struct
class LeaderEndpoint:
    """An address of the leader that asks."""

    name: Annotated[Str, since(1)]
    host: Annotated[Str, since(1)]
    port: Annotated[UInt16, since(1)]


@struct
class BeginEpochPartition:
    """Who leads a log from now on, in which epoch."""

    partition_index: Int32
    voter_directory_id: Annotated[Uuid, since(1), ignorable] = ZERO_UUID
    leader_id: BrokerId
    leader_epoch: Int32


@struct
class BeginEpochTopic:
    """One topic."""

    topic_name: TopicName
    partitions: list[BeginEpochPartition]


@message(api_key=53, direction="request", versions=(0, 1), flexible=1)
class BeginQuorumEpochRequest:
    """A new leader tells a voter that it was elected, until the voter fetches (KIP-595)."""

    cluster_id: NullableStr = None
    voter_id: Annotated[BrokerId, since(1), ignorable] = -1
    topics: list[BeginEpochTopic]
    leader_endpoints: Annotated[list[LeaderEndpoint], since(1), ignorable] = field(default_factory=list)


@struct
class EpochPartitionResult:
    """Whom the voter knows as leader, in which epoch."""

    partition_index: Int32
    error_code: Int16
    leader_id: BrokerId
    leader_epoch: Int32


@struct
class EpochTopicResult:
    """One topic."""

    topic_name: TopicName
    partitions: list[EpochPartitionResult]


@message(api_key=53, direction="response", versions=(0, 1), flexible=1)
class BeginQuorumEpochResponse:
    """A voter has heard of the leader, or knows better."""

    error_code: Int16
    topics: list[EpochTopicResult]
    node_endpoints: Annotated[list[QuorumNodeEndpoint], since(1), tag(0)] = field(default_factory=list)


@struct
class PreferredCandidate:
    """A voter that has much of the log."""

    candidate_id: Annotated[BrokerId, since(1)]
    candidate_directory_id: Annotated[Uuid, since(1)]


@struct
class EndEpochPartition:
    """Who leads a log no more, and who should: those that have most of it first."""

    partition_index: Int32
    leader_id: BrokerId
    leader_epoch: Int32
    preferred_successors: Annotated[list[Int32], until(0), ignorable] = field(default_factory=list)
    preferred_candidates: Annotated[list[PreferredCandidate], since(1), ignorable] = field(default_factory=list)


@struct
class EndEpochTopic:
    """One topic."""

    topic_name: TopicName
    partitions: list[EndEpochPartition]


@message(api_key=54, direction="request", versions=(0, 1), flexible=1)
class EndQuorumEpochRequest:
    """A leader resigns, so that its voters need not wait for a timeout (KIP-595)."""

    cluster_id: NullableStr = None
    topics: list[EndEpochTopic]
    leader_endpoints: Annotated[list[LeaderEndpoint], since(1), ignorable] = field(default_factory=list)


@message(api_key=54, direction="response", versions=(0, 1), flexible=1)
class EndQuorumEpochResponse:
    """A voter has heard of it."""

    error_code: Int16
    topics: list[EpochTopicResult]
    node_endpoints: Annotated[list[QuorumNodeEndpoint], since(1), tag(0)] = field(default_factory=list)


@struct
class PartitionQuery:
    """A partition that is asked about."""

    partition_index: Int32


@struct
class TopicQuery:
    """A topic that is asked about."""

    topic_name: TopicName
    partitions: list[PartitionQuery]


@message(api_key=55, direction="request", versions=(0, 2), flexible=0)
class DescribeQuorumRequest:
    """Asks who votes on the metadata log and how far each has it (KIP-595)."""

    topics: list[TopicQuery]


@struct
class ReplicaState:
    """One replica: its end, and in ms since 1970 when it last fetched and was last level with the leader (KIP-836)."""

    replica_id: BrokerId
    replica_directory_id: Annotated[Uuid, since(2)] = ZERO_UUID
    log_end_offset: Int64
    last_fetch_timestamp: Annotated[Int64, since(1), ignorable] = -1
    last_caught_up_timestamp: Annotated[Int64, since(1), ignorable] = -1


@struct
class PartitionData:
    """One partition: its leader, what is committed, voters and observers."""

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
    """One topic."""

    topic_name: TopicName
    partitions: list[PartitionData]


@struct
class Listener:
    """An address of a controller."""

    name: Annotated[Str, since(2)]
    host: Annotated[Str, since(2)]
    port: Annotated[UInt16, since(2)]


@struct
class Node:
    """A controller and where it is reached."""

    node_id: Annotated[BrokerId, since(2)]
    listeners: Annotated[list[Listener], since(2)]


@message(api_key=55, direction="response", versions=(0, 2), flexible=0)
class DescribeQuorumResponse:
    """The state of the quorum as its leader sees it."""

    error_code: Int16
    error_message: Annotated[NullableStr, since(2), ignorable] = ""
    topics: list[TopicData]
    nodes: Annotated[list[Node], since(2)] = field(default_factory=list)
