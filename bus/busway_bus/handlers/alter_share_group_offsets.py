"""AlterShareGroupOffsets (key 91, version 0): set an empty share group's offsets (KIP-932).

Behaviour: a missing group is created. The states of records from the offset on are deleted.
"""

from uuid import UUID

from busway_bus.handlers.common.context import RequestContext
from busway_bus.metadata.features import SHARE_VERSION
from busway_bus.metadata.image import ClusterImage
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from busway_protocol.types import ZERO_UUID

API = ApiKey.ALTER_SHARE_GROUP_OFFSETS
VERSIONS = (0, 0)
FEATURE = SHARE_VERSION
NEEDS = (Access(Operation.READ, Resource.GROUP), Access(Operation.READ, Resource.TOPIC))
_MISSING = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def handle(request: AlterShareGroupOffsetsRequest, context: RequestContext) -> AlterShareGroupOffsetsResponse:
    image = context.node.image
    offsets: dict[UUID, tuple[str, dict[int, int]]] = {}
    for topic in request.topics:
        topic_image = image.topics.get(topic.topic_name)
        if topic_image is not None:
            starts = offsets.setdefault(topic_image.topic_id, (topic.topic_name, {}))[1]
            for partition in topic.partitions:
                if 0 <= partition.partition_index < len(topic_image.partitions):
                    starts[partition.partition_index] = partition.start_offset
    try:
        if not image.features.get(SHARE_VERSION, 0):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        failed = await context.node.share_groups.alter_offsets(request.group_id, offsets)
    except KafkaError as problem:
        return AlterShareGroupOffsetsResponse(
            throttle_time_ms=0, error_code=problem.code, error_message=problem.message, responses=[]
        )
    return AlterShareGroupOffsetsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        responses=[_topic(topic, image, offsets, failed) for topic in request.topics],
    )


def _topic(
    topic: AlterShareGroupOffsetsRequestTopic,
    image: ClusterImage,
    offsets: dict[UUID, tuple[str, dict[int, int]]],
    failed: dict[tuple[UUID, int], KafkaError],
) -> AlterShareGroupOffsetsResponseTopic:
    topic_image = image.topics.get(topic.topic_name)
    topic_id = ZERO_UUID if topic_image is None else topic_image.topic_id
    _, starts = offsets.get(topic_id, ("", {}))
    rows = []
    for partition in topic.partitions:
        partition_index = partition.partition_index
        problem = failed.get((topic_id, partition_index)) if partition_index in starts else _MISSING
        rows.append(
            AlterShareGroupOffsetsResponsePartition(
                partition_index=partition_index,
                error_code=ErrorCode.NONE if problem is None else problem.code,
                error_message=None if problem is None else problem.message,
            )
        )
    return AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, topic_id=topic_id, partitions=rows)
