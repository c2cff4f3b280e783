"""The quorum that keeps the cluster's metadata.

Messages: DescribeQuorum. Layouts as in Kafka 4.3.1; the fields keep Kafka's names.
"""

from dataclasses import field
from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import (
    ZERO_UUID,
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
)


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
