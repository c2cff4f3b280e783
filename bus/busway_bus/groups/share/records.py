"""The records of share groups (KIP-932) in `__consumer_offsets`.

What lives here: their layouts, of the kafka-group-coordinator 4.3.1 jar. What does not: encoding and decoding
(`record_serde`), applying them (`group`).
"""

from typing import Annotated, Final

from busway_bus.groups.records import Layouts
from busway_protocol.schema import message, struct
from busway_protocol.types import Int8, Int32, Int64, NullableStr, Str, Uuid, ignorable, tag


@message(api_key=10, versions=(0, 0))
class ShareGroupMemberMetadataKey:
    """The key of a member's metadata."""

    group_id: Str
    member_id: Str


@message(api_key=10, versions=(0, 0), flexible=0)
class ShareGroupMemberMetadataValue:
    """A member's identity and subscription."""

    rack_id: NullableStr
    client_id: Str
    client_host: Str
    subscribed_topic_names: list[Str]


@message(api_key=11, versions=(0, 0))
class ShareGroupMetadataKey:
    """The key of a group's epoch."""

    group_id: Str


@message(api_key=11, versions=(0, 0), flexible=0)
class ShareGroupMetadataValue:
    """The group's epoch and the hash of its topics' metadata."""

    epoch: Int32
    metadata_hash: Int64


@message(api_key=12, versions=(0, 0))
class ShareGroupTargetAssignmentMetadataKey:
    """The key of a target assignment's epoch."""

    group_id: Str


@message(api_key=12, versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMetadataValue:
    """The epoch of the target assignment and the time of its computation."""

    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, tag(0), ignorable] = 0


@message(api_key=13, versions=(0, 0))
class ShareGroupTargetAssignmentMemberKey:
    """The key of a member's target assignment."""

    group_id: Str
    member_id: Str


@struct
class TopicPartition:
    """Partitions of a topic in a target assignment."""

    topic_id: Uuid
    partitions: list[Int32]


@message(api_key=13, versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMemberValue:
    """A member's target assignment."""

    topic_partitions: list[TopicPartition]


@message(api_key=14, versions=(0, 0))
class ShareGroupCurrentMemberAssignmentKey:
    """The key of a member's current assignment."""

    group_id: Str
    member_id: Str


@struct
class TopicPartitions:
    """Partitions of a topic in a current assignment."""

    topic_id: Uuid
    partitions: list[Int32]


@message(api_key=14, versions=(0, 0), flexible=0)
class ShareGroupCurrentMemberAssignmentValue:
    """A member's current assignment and its epoch."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]


@message(api_key=15, versions=(0, 0))
class ShareGroupStatePartitionMetadataKey:
    """The key of a group's share partitions."""

    group_id: Str


@struct
class TopicPartitionsInfo:
    """Partitions of a topic, with its name."""

    topic_id: Uuid
    topic_name: Str
    partitions: list[Int32]


@struct
class TopicInfo:
    """A topic."""

    topic_id: Uuid
    topic_name: Str


@message(api_key=15, versions=(0, 0), flexible=0)
class ShareGroupStatePartitionMetadataValue:
    """A group's initializing, initialized and deleting share partitions."""

    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]


LAYOUTS: Final[Layouts] = {
    10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue, 0),
    11: (ShareGroupMetadataKey, ShareGroupMetadataValue, 0),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue, 0),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue, 0),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue, 0),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue, 0),
}
