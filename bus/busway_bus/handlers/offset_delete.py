"""OffsetDelete (key 47, version 0): forget the offsets of topics that a group no longer reads (KIP-496).

Behaviour: GROUP_SUBSCRIBED_TO_TOPIC while a member of a consumer group reads the topic.
*Not supported*: nothing is left out.
"""

from busway_bus.groups.classic import ClassicGroup
from busway_bus.groups.records import OffsetCommitKey
from busway_bus.groups.shard import Change
from busway_bus.handlers.context import RequestContext
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

API = ApiKey.OFFSET_DELETE
VERSIONS = (0, 0)


async def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Write a tombstone for each offset."""
    try:
        shard = context.node.groups.shard(request.group_id)
        if not shard.known(request.group_id):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        group = shard.groups.get(request.group_id)
        if group is not None and group.members and group.protocol_type != "consumer":
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    except KafkaError as problem:
        return OffsetDeleteResponse(error_code=problem.code, topics=[])
    changes: list[Change] = []
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            code = ErrorCode.NONE
            if topic.name not in context.node.image.topics:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif group is not None and _subscribed(group, topic.name):
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif (topic.name, partition.partition_index) in shard.offsets.get(request.group_id, {}):
                key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=partition.partition_index)
                changes.append((key, None))
            partitions.append(OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=code))
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
    await context.node.groups.write(request.group_id, changes)
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics)


def _subscribed(group: ClassicGroup, topic: str) -> bool:
    """Whether a member's subscription names the topic: version, then an array of names (Kafka's consumer protocol)."""
    for member in group.members.values():
        metadata = member.metadata(group.protocol)
        position = 6
        for _ in range(int.from_bytes(metadata[2:6], "big")):
            size = int.from_bytes(metadata[position : position + 2], "big")
            if metadata[position + 2 : position + 2 + size] == topic.encode():
                return True
            position += 2 + size
            if size == 0 or position >= len(metadata):
                break
    return False
