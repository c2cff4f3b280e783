"""OffsetDelete (key 47, version 0): forget the offsets of topics that a group no longer reads (KIP-496).

Behaviour: GROUP_SUBSCRIBED_TO_TOPIC while members of a consumer group read that topic; offsets of other topics go. NON_EMPTY_GROUP
while a group of another kind has members.
*Not supported*: nothing is left out.
"""

from busway_bus.groups.classic_values import State
from busway_bus.groups.records import OffsetCommitKey
from busway_bus.groups.shard import Change
from busway_bus.handlers.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.assignors.consumer_protocol import PROTOCOL_TYPE
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

API = ApiKey.OFFSET_DELETE
VERSIONS = (0, 0)
NEEDS = (Access(Operation.DELETE, Resource.GROUP), Access(Operation.READ, Resource.TOPIC))


async def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Write a tombstone for each offset."""
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        shard = context.node.groups.shard(request.group_id)
        group = shard.groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.state is not State.EMPTY and group.protocol_type != PROTOCOL_TYPE:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    except KafkaError as problem:
        return OffsetDeleteResponse(error_code=problem.code, topics=[])
    changes: list[Change] = []
    topics = []
    for topic in request.topics:
        known = context.node.image.topics.get(topic.name)
        partitions = []
        for partition in topic.partitions:
            code = ErrorCode.NONE
            if known is None or not 0 <= partition.partition_index < len(known.partitions):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif group.reads(topic.name):
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif (topic.name, partition.partition_index) in shard.offsets.get(request.group_id, {}):
                key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=partition.partition_index)
                changes.append((key, None))
            partitions.append(OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=code))
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
    try:
        await context.node.groups.write(request.group_id, changes)
    except KafkaError as problem:
        return OffsetDeleteResponse(error_code=problem.code, topics=[])
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics)
