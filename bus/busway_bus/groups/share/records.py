"""The records of share groups (KIP-932) in `__consumer_offsets`.

Here: layouts of the kafka-group-coordinator 4.3.1 jar.
Not here: encoding (`record_serde`), applying (`group`).
"""

from typing import Annotated, Final

from busway_bus.groups.records import Layouts
from busway_protocol.schema import message, struct
from busway_protocol.types import Int8, Int32, Int64, NullableStr, Str, Uuid, ignorable, tag


@message(api_key=10, versions=(0, 0))
class ShareGroupMemberMetadataKey:
    group_id: Str
    member_id: Str


@message(api_key=10, versions=(0, 0), flexible=0)
class ShareGroupMemberMetadataValue:
    rack_id: NullableStr
    client_id: Str
    client_host: Str
    subscribed_topic_names: list[Str]


@message(api_key=11, versions=(0, 0))
class ShareGroupMetadataKey:
    group_id: Str


@message(api_key=11, versions=(0, 0), flexible=0)
class ShareGroupMetadataValue:
    epoch: Int32
    metadata_hash: Int64


@message(api_key=12, versions=(0, 0))
class ShareGroupTargetAssignmentMetadataKey:
    group_id: Str


@message(api_key=12, versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMetadataValue:
    """Epoch and time of computation."""

    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, tag(0), ignorable] = 0


@message(api_key=13, versions=(0, 0))
class ShareGroupTargetAssignmentMemberKey:
    group_id: Str
    member_id: Str


@struct
class TopicPartition:
    topic_id: Uuid
    partitions: list[Int32]


@message(api_key=13, versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartition]


@message(api_key=14, versions=(0, 0))
class ShareGroupCurrentMemberAssignmentKey:
    group_id: Str
    member_id: Str


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]


@message(api_key=14, versions=(0, 0), flexible=0)
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]


@message(api_key=15, versions=(0, 0))
class ShareGroupStatePartitionMetadataKey:
    group_id: Str


@struct
class TopicPartitionsInfo:
    topic_id: Uuid
    topic_name: Str
    partitions: list[Int32]


@struct
class TopicInfo:
    topic_id: Uuid
    topic_name: Str


@message(api_key=15, versions=(0, 0), flexible=0)
class ShareGroupStatePartitionMetadataValue:
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
