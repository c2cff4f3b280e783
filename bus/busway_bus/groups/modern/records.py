"""The records of consumer groups (KIP-848) in `__consumer_offsets`.

Here: layouts of the kafka-group-coordinator 4.3.1 jar.
Not here: encoding (`record_serde`), applying (`consumer_state`).
"""

from dataclasses import field
from typing import Annotated, Final

from busway_bus.groups.records import Layouts
from busway_protocol.schema import message, struct
from busway_protocol.types import (
    Bytes,
    Int8,
    Int32,
    Int64,
    NullableStr,
    Str,
    Uuid,
    ignorable,
    tag,
)


@message(api_key=3, versions=(0, 0))
class ConsumerGroupMetadataKey:
    group_id: Str


@message(api_key=3, versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue:
    epoch: Int32
    metadata_hash: Annotated[Int64, tag(0)] = 0


@message(api_key=4, versions=(0, 0))
class ConsumerGroupPartitionMetadataKey:
    """Only its tombstone is written; Kafka before 4.1 wrote partitions."""

    group_id: Str


@struct
class PartitionMetadata:
    partition: Int32
    racks: list[Str]


@struct
class TopicMetadata:
    topic_id: Uuid
    topic_name: Str
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata]


@message(api_key=4, versions=(0, 0), flexible=0)
class ConsumerGroupPartitionMetadataValue:
    topics: list[TopicMetadata]


@message(api_key=5, versions=(0, 0))
class ConsumerGroupMemberMetadataKey:
    group_id: Str
    member_id: Str


@struct
class ClassicProtocol:
    name: Str
    metadata: Bytes


@struct
class ClassicMemberMetadata:
    session_timeout_ms: Int32 = 0
    supported_protocols: list[ClassicProtocol] = field(default_factory=list)


@message(api_key=5, versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue:
    instance_id: NullableStr
    rack_id: NullableStr
    client_id: Str
    client_host: Str
    subscribed_topic_names: list[Str]
    subscribed_topic_regex: NullableStr
    rebalance_timeout_ms: Int32 = -1
    server_assignor: NullableStr
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, tag(0)] = field(
        default_factory=ClassicMemberMetadata
    )


@message(api_key=6, versions=(0, 0))
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: Str


@message(api_key=6, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue:
    """Epoch and time of computation."""

    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, tag(0), ignorable] = 0


@message(api_key=7, versions=(0, 0))
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: Str
    member_id: Str


@struct
class TargetTopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]


@message(api_key=7, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TargetTopicPartitions]


@message(api_key=8, versions=(0, 0))
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: Str
    member_id: Str


@struct
class CurrentTopicPartitions:
    """Partitions of a topic, each with its owner's epoch at its assignment."""

    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: Annotated[list[Int32] | None, tag(0)] = field(default_factory=list)


@message(api_key=8, versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[CurrentTopicPartitions] = field(default_factory=list)
    partitions_pending_revocation: list[CurrentTopicPartitions] = field(default_factory=list)


@message(api_key=16, versions=(0, 0))
class ConsumerGroupRegularExpressionKey:
    group_id: Str
    regular_expression: Str


@message(api_key=16, versions=(0, 0), flexible=0)
class ConsumerGroupRegularExpressionValue:
    """The matching topics, the cluster image's version, and the time."""

    topics: list[Str]
    version: Int64
    timestamp: Int64


LAYOUTS: Final[Layouts] = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, 0),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue, 0),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, 0),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, 0),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, 0),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, 0),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, 0),
}
