"""OffsetCommit (key 8, versions 2-10): store committed offsets of a group.

Versions: 2 to 4 have a retention time, 6 has the leader epoch (KIP-320), 7 static members (KIP-345), 8 is flexible, 9
has member epochs (KIP-848) and GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION, 10 topic ids.
Behaviour: accepted from members of the current generation, or from anyone while the group is empty; an offset's
metadata is returned with it. A member of a consumer group commits in its epoch, or in an earlier one the partitions
that it has had since.
"""

from busway_bus.groups.group import Committer
from busway_bus.groups.offsets import TopicPartition
from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.common.offset_commits import new_offsets
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

API = ApiKey.OFFSET_COMMIT
VERSIONS = (2, 10)
NEEDS = (Access(Operation.READ, Resource.GROUP), Access(Operation.READ, Resource.TOPIC))
TOPIC_IDS_SINCE = 10
NOT_FOUND_SINCE = 9


async def handle(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    """Check the partitions, store the offsets, respond once durable."""
    names = [_name(topic, context) for topic in request.topics]
    requested = ((name, topic.partitions) for name, topic in zip(names, request.topics, strict=True))
    offsets = new_offsets(context.node.image, requested, retention_ms=request.retention_time_ms)
    context.node.groups.connections.lives(context.peer, (request.group_id, request.member_id))
    try:
        committer = Committer(
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            epoch=request.generation_id_or_member_epoch,
            version=context.api_version,
            host=context.client_host,
        )
        codes = await context.node.groups.commit(request.group_id, committer, offsets)
    except KafkaError as problem:
        code = problem.code
        if code is ErrorCode.GROUP_ID_NOT_FOUND and context.api_version < NOT_FOUND_SINCE:
            code = ErrorCode.ILLEGAL_GENERATION
        codes = dict.fromkeys(offsets, code)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=_code(name, partition.partition_index, codes),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic, name in zip(request.topics, names, strict=True)
        ]
    )


def _name(topic: OffsetCommitRequestTopic, context: RequestContext) -> str | None:
    if context.api_version < TOPIC_IDS_SINCE:
        return topic.name
    return context.node.image.names.get(topic.topic_id)


def _code(name: str | None, partition_index: int, codes: dict[TopicPartition, ErrorCode]) -> ErrorCode:
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return codes.get((name, partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
