"""Where partitions lie and who leads them: log directories, elections, reassignments.

Messages: DescribeLogDirs, ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments. Layouts as in Kafka 4.3.1; the
fields keep Kafka's names.
"""

from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import (
    Bool,
    BrokerId,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableStr,
    Str,
    TopicName,
    ignorable,
    since,
)


@struct
class DescribableLogDirTopic:
    """A topic and those of its partitions whose logs are asked for."""

    topic: TopicName
    partitions: list[Int32]


@message(api_key=35, direction="request", versions=(1, 5), flexible=2)
class DescribeLogDirsRequest:
    """Asks for the logs of partitions and their sizes; null asks for all."""

    topics: list[DescribableLogDirTopic] | None


@struct
class DescribeLogDirsPartition:
    """One log: its size in bytes, and how far its end is ahead of the high watermark."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


@struct
class DescribeLogDirsTopic:
    """A topic and its logs in one directory."""

    name: TopicName
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsResult:
    """One directory: what lies in it, and the room on its volume in bytes, -1 where it is not known (KIP-827)."""

    error_code: Int16
    log_dir: Str
    topics: list[DescribeLogDirsTopic]
    total_bytes: Annotated[Int64, since(4), ignorable] = -1
    usable_bytes: Annotated[Int64, since(4), ignorable] = -1
    is_cordoned: Annotated[Bool, since(5), ignorable] = False


@message(api_key=35, direction="response", versions=(1, 5), flexible=2)
class DescribeLogDirsResponse:
    """The data directories of a broker."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3), ignorable] = 0
    results: list[DescribeLogDirsResult]


@struct
class TopicPartitions:
    """A topic and those of its partitions that are to elect a leader."""

    topic: TopicName
    partitions: list[Int32]


@message(api_key=43, direction="request", versions=(0, 2), flexible=2)
class ElectLeadersRequest:
    """Asks for an election: 0 of the preferred replica, 1 of any that lives (KIP-460); null means every partition."""

    election_type: Annotated[Int8, since(1)] = 0
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = 60_000


@struct
class PartitionResult:
    """What became of one election."""

    partition_id: Int32
    error_code: Int16
    error_message: NullableStr


@struct
class ReplicaElectionResult:
    """The elections of one topic."""

    topic: TopicName
    partition_result: list[PartitionResult]


@message(api_key=43, direction="response", versions=(0, 2), flexible=2)
class ElectLeadersResponse:
    """The outcome for each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    replica_election_results: list[ReplicaElectionResult]


@struct
class ReassignablePartition:
    """A partition and the brokers that are to have it; null ends a move that is under way."""

    partition_index: Int32
    replicas: list[BrokerId] | None = None


@struct
class ReassignableTopic:
    """A topic and its partitions that are to move."""

    name: TopicName
    partitions: list[ReassignablePartition]


@message(api_key=45, direction="request", versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest:
    """Moves partitions to other brokers, or ends their moves (KIP-455)."""

    timeout_ms: Int32 = 60_000
    allow_replication_factor_change: Annotated[Bool, since(1)] = True
    topics: list[ReassignableTopic]


@struct
class ReassignablePartitionResponse:
    """Whether the move of one partition was taken on."""

    partition_index: Int32
    error_code: Int16
    error_message: NullableStr


@struct
class ReassignableTopicResponse:
    """The moves of one topic."""

    name: TopicName
    partitions: list[ReassignablePartitionResponse]


@message(api_key=45, direction="response", versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse:
    """The outcome for each partition."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, since(1), ignorable] = True
    error_code: Int16
    error_message: NullableStr
    responses: list[ReassignableTopicResponse]


@struct
class ListPartitionReassignmentsTopics:
    """A topic and its partitions that are asked about."""

    name: TopicName
    partition_indexes: list[Int32]


@message(api_key=46, direction="request", versions=(0, 0), flexible=0)
class ListPartitionReassignmentsRequest:
    """Asks which moves are under way; null means of every partition."""

    timeout_ms: Int32 = 60_000
    topics: list[ListPartitionReassignmentsTopics] | None = None


@struct
class OngoingPartitionReassignment:
    """A move that is under way."""

    partition_index: Int32
    replicas: list[BrokerId]
    adding_replicas: list[BrokerId]
    removing_replicas: list[BrokerId]


@struct
class OngoingTopicReassignment:
    """The moves of one topic."""

    name: TopicName
    partitions: list[OngoingPartitionReassignment]


@message(api_key=46, direction="response", versions=(0, 0), flexible=0)
class ListPartitionReassignmentsResponse:
    """The moves that are under way."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableStr
    topics: list[OngoingTopicReassignment]
