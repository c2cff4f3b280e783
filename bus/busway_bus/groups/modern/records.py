"""The record types of consumer groups (KIP-848) in `__consumer_offsets`.

What lives here: their layouts, those of the kafka-group-coordinator 4.3.1 jar. What does not: the way to and from bytes (`record_serde`), what
they mean for a group (`consumer_group`).
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
    """Which group it is."""

    group_id: Str


@message(api_key=3, versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue:
    """The group's epoch, and what it knew then of the topics that it reads."""

    epoch: Int32
    metadata_hash: Annotated[Int64, tag(0)] = 0


@message(api_key=4, versions=(0, 0))
class ConsumerGroupPartitionMetadataKey:
    """Which group it is. Kafka before 4.1 wrote the partitions of its topics so; now only the tombstone is written."""

    group_id: Str


@struct
class PartitionMetadata:
    """One partition and the racks that have it."""

    partition: Int32
    racks: list[Str]


@struct
class TopicMetadata:
    """One topic as the group knew it."""

    topic_id: Uuid
    topic_name: Str
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata]


@message(api_key=4, versions=(0, 0), flexible=0)
class ConsumerGroupPartitionMetadataValue:
    """The topics that the group reads."""

    topics: list[TopicMetadata]


@message(api_key=5, versions=(0, 0))
class ConsumerGroupMemberMetadataKey:
    """Which member of which group it is."""

    group_id: Str
    member_id: Str


@struct
class ClassicProtocol:
    """A protocol that a classic member speaks, with its subscription."""

    name: Str
    metadata: Bytes


@struct
class ClassicMemberMetadata:
    """What is kept beside of a member that uses the classic protocol."""

    session_timeout_ms: Int32 = 0
    supported_protocols: list[ClassicProtocol] = field(default_factory=list)


@message(api_key=5, versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue:
    """Who a member is, and what it wants to read."""

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
    """Which group it is."""

    group_id: Str


@message(api_key=6, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue:
    """Of which epoch the target assignment is, and when it was computed."""

    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, tag(0), ignorable] = 0


@message(api_key=7, versions=(0, 0))
class ConsumerGroupTargetAssignmentMemberKey:
    """Which member of which group it is."""

    group_id: Str
    member_id: Str


@struct
class TargetTopicPartitions:
    """Partitions of a topic."""

    topic_id: Uuid
    partitions: list[Int32]


@message(api_key=7, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue:
    """What a member is to have."""

    topic_partitions: list[TargetTopicPartitions]


@message(api_key=8, versions=(0, 0))
class ConsumerGroupCurrentMemberAssignmentKey:
    """Which member of which group it is."""

    group_id: Str
    member_id: Str


@struct
class CurrentTopicPartitions:
    """Partitions of a topic, with the epoch since which the member has each."""

    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: Annotated[list[Int32] | None, tag(0)] = field(default_factory=list)


@message(api_key=8, versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue:
    """What a member has, and how far it is on the way to what it is to have."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[CurrentTopicPartitions] = field(default_factory=list)
    partitions_pending_revocation: list[CurrentTopicPartitions] = field(default_factory=list)


@message(api_key=16, versions=(0, 0))
class ConsumerGroupRegularExpressionKey:
    """Which regular expression of which group it is."""

    group_id: Str
    regular_expression: Str


@message(api_key=16, versions=(0, 0), flexible=0)
class ConsumerGroupRegularExpressionValue:
    """The topics that it matched, in which version of the cluster's picture and when."""

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
