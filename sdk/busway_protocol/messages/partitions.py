"""Log directories, leader elections, in-sync replicas, reassignments."""

from dataclasses import field
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
    Uuid,
    ignorable,
    since,
    until,
)


@struct
class DescribableLogDirTopic:
    topic: TopicName
    partitions: list[Int32]


@message(api_key=35, direction="request", versions=(1, 5), flexible=2)
class DescribeLogDirsRequest:
    """Null for all."""

    topics: list[DescribableLogDirTopic] | None


@struct
class DescribeLogDirsPartition:
    """One log: size in bytes, and its end's lead over the high watermark."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


@struct
class DescribeLogDirsTopic:
    name: TopicName
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsResult:
    """One directory: its logs, and the volume's bytes, -1 if unknown (KIP-827)."""

    error_code: Int16
    log_dir: Str
    topics: list[DescribeLogDirsTopic]
    total_bytes: Annotated[Int64, since(4), ignorable] = -1
    usable_bytes: Annotated[Int64, since(4), ignorable] = -1
    is_cordoned: Annotated[Bool, since(5), ignorable] = False


@message(api_key=35, direction="response", versions=(1, 5), flexible=2)
class DescribeLogDirsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3), ignorable] = 0
    results: list[DescribeLogDirsResult]


@struct
class TopicPartitions:
    topic: TopicName
    partitions: list[Int32]


@message(api_key=43, direction="request", versions=(0, 2), flexible=2)
class ElectLeadersRequest:
    """Elections: 0 of the preferred replica, 1 of any live one (KIP-460); null for all partitions."""

    election_type: Annotated[Int8, since(1)] = 0
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = 60_000


@struct
class PartitionResult:
    partition_id: Int32
    error_code: Int16
    error_message: NullableStr


@struct
class ReplicaElectionResult:
    topic: TopicName
    partition_result: list[PartitionResult]


@message(api_key=43, direction="response", versions=(0, 2), flexible=2)
class ElectLeadersResponse:
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    replica_election_results: list[ReplicaElectionResult]


@struct
class ReassignablePartition:
    """A partition and its new brokers; null cancels a reassignment."""

    partition_index: Int32
    replicas: list[BrokerId] | None = None


@struct
class ReassignableTopic:
    name: TopicName
    partitions: list[ReassignablePartition]


@message(api_key=45, direction="request", versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest:
    """Reassignments, or their cancellation (KIP-455)."""

    timeout_ms: Int32 = 60_000
    allow_replication_factor_change: Annotated[Bool, since(1)] = True
    topics: list[ReassignableTopic]


@struct
class ReassignablePartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: NullableStr


@struct
class ReassignableTopicResponse:
    name: TopicName
    partitions: list[ReassignablePartitionResponse]


@message(api_key=45, direction="response", versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, since(1), ignorable] = True
    error_code: Int16
    error_message: NullableStr
    responses: list[ReassignableTopicResponse]


@struct
class ListPartitionReassignmentsTopics:
    name: TopicName
    partition_indexes: list[Int32]


@message(api_key=46, direction="request", versions=(0, 0), flexible=0)
class ListPartitionReassignmentsRequest:
    """Null for all partitions."""

    timeout_ms: Int32 = 60_000
    topics: list[ListPartitionReassignmentsTopics] | None = None


@struct
class OngoingPartitionReassignment:
    partition_index: Int32
    replicas: list[BrokerId]
    adding_replicas: list[BrokerId]
    removing_replicas: list[BrokerId]


@struct
class OngoingTopicReassignment:
    name: TopicName
    partitions: list[OngoingPartitionReassignment]


@message(api_key=46, direction="response", versions=(0, 0), flexible=0)
class ListPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableStr
    topics: list[OngoingTopicReassignment]


@struct
class BrokerState:
    """An in-sync replica; epoch -1 is not checked (KIP-903)."""

    broker_id: Annotated[BrokerId, since(3)]
    broker_epoch: Annotated[Int64, since(3)] = -1


@struct
class AlterPartitionRequestPartition:
    """A partition's new ISR, as of the leader's epochs; recovery state 1 after an unclean election (KIP-704)."""

    partition_index: Int32
    leader_epoch: Int32
    new_isr: Annotated[list[BrokerId], until(2)] = field(default_factory=list)
    new_isr_with_epochs: Annotated[list[BrokerState], since(3)] = field(default_factory=list)
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32


@struct
class AlterPartitionRequestTopic:
    topic_id: Annotated[Uuid, ignorable]
    partitions: list[AlterPartitionRequestPartition]


@message(api_key=56, direction="request", versions=(2, 3), flexible=0)
class AlterPartitionRequest:
    """New ISRs of partitions that a broker leads (KIP-497)."""

    broker_id: BrokerId
    broker_epoch: Int64 = -1
    topics: list[AlterPartitionRequestTopic]


@struct
class AlterPartitionResponsePartition:
    """The partition as it is after the change."""

    partition_index: Int32
    error_code: Int16
    leader_id: BrokerId
    leader_epoch: Int32
    isr: list[BrokerId]
    leader_recovery_state: Annotated[Int8, ignorable] = 0
    partition_epoch: Int32


@struct
class AlterPartitionResponseTopic:
    topic_id: Annotated[Uuid, ignorable]
    partitions: list[AlterPartitionResponsePartition]


@message(api_key=56, direction="response", versions=(2, 3), flexible=0)
class AlterPartitionResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    topics: list[AlterPartitionResponseTopic]


@struct
class AssignReplicasToDirsRequestPartition:
    partition_index: Int32


@struct
class AssignReplicasToDirsRequestTopic:
    topic_id: Uuid
    partitions: list[AssignReplicasToDirsRequestPartition]


@struct
class AssignReplicasToDirsRequestDirectory:
    id: Uuid
    topics: list[AssignReplicasToDirsRequestTopic]


@message(api_key=73, direction="request", versions=(0, 0), flexible=0)
class AssignReplicasToDirsRequest:
    """The directories of a broker's replicas (KIP-858)."""

    broker_id: BrokerId
    broker_epoch: Int64 = -1
    directories: list[AssignReplicasToDirsRequestDirectory]


@struct
class AssignReplicasToDirsResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class AssignReplicasToDirsResponseTopic:
    topic_id: Uuid
    partitions: list[AssignReplicasToDirsResponsePartition]


@struct
class AssignReplicasToDirsResponseDirectory:
    id: Uuid
    topics: list[AssignReplicasToDirsResponseTopic]


@message(api_key=73, direction="response", versions=(0, 0), flexible=0)
class AssignReplicasToDirsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    directories: list[AssignReplicasToDirsResponseDirectory]
