"""OffsetDelete (key 47, version 0): delete a group's offsets of unused topics (KIP-496).

Behaviour: GROUP_SUBSCRIBED_TO_TOPIC for a topic that members of a consumer group read. NON_EMPTY_GROUP while a group of
another kind has members.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
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
NEEDS = (Access(Operation.DELETE, Resource.GROUP), Access(Operation.READ, Resource.TOPIC))


async def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Delete the offsets; respond once that is durable."""
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID, topics=[])
    partitions = [
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
        if topic.name in context.node.image.topics
        and 0 <= partition.partition_index < len(context.node.image.topics[topic.name].partitions)
    ]
    try:
        codes = await context.node.groups.delete_offsets(request.group_id, partitions)
    except KafkaError as problem:
        return OffsetDeleteResponse(error_code=problem.code, topics=[])
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes.get(
                            (topic.name, partition.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
