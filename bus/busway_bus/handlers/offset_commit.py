"""OffsetCommit (key 8, versions 2-10): store how far a group has read.

Versions: 6 has the leader epoch (KIP-320), 7 static members (KIP-345), 8 is flexible, 9 member epochs (KIP-848), 10 topic ids.
Behaviour: by a member of the current generation, or by anyone while the group is empty; the text stored with an offset comes back.
*Not supported*: member epochs; such groups do not exist here.
"""

from uuid import UUID

from busway_bus.groups.records import OffsetCommitKey, OffsetCommitValue
from busway_bus.groups.shard import Change
from busway_bus.handlers.context import RequestContext
from busway_bus.replication.manager import wall_ms
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

API = ApiKey.OFFSET_COMMIT
VERSIONS = (2, 10)
TOPIC_IDS_SINCE = 10


async def handle(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    """Check the member, write the offsets, answer when they are on disk."""
    changes: list[Change] = []
    topics = []
    whole = _refused(request, context)
    for topic in request.topics:
        name = _name(topic, context)
        partitions = []
        for partition in topic.partitions:
            code = whole
            if code is ErrorCode.NONE:
                code = _check(name, partition, context)
            if code is ErrorCode.NONE:
                changes.append(_change(request.group_id, name or "", partition))
            partitions.append(OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code))
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    try:
        await context.node.groups.write(request.group_id, changes)
    except KafkaError as problem:
        for answer in topics:
            for partition_answer in answer.partitions:
                partition_answer.error_code = problem.code
    return OffsetCommitResponse(topics=topics)


def _refused(request: OffsetCommitRequest, context: RequestContext) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    try:
        shard = context.node.groups.shard(request.group_id)
    except KafkaError as problem:
        return problem.code
    generation = request.generation_id_or_member_epoch
    group = shard.groups.get(request.group_id)
    if group is None:
        return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
    return group.check_commit(request.member_id, request.group_instance_id, generation)


def _name(topic: OffsetCommitRequestTopic, context: RequestContext) -> str | None:
    if context.api_version < TOPIC_IDS_SINCE:
        return topic.name
    topic_id: UUID = topic.topic_id
    return context.node.image.names.get(topic_id)


def _check(name: str | None, partition: OffsetCommitRequestPartition, context: RequestContext) -> ErrorCode:
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    topic = context.node.image.topics.get(name)
    if topic is None or not 0 <= partition.partition_index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    text = partition.committed_metadata or ""
    if len(text.encode()) > context.node.config.get("offset.metadata.max.bytes"):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _change(group_id: str, topic: str, partition: OffsetCommitRequestPartition) -> Change:
    return (
        OffsetCommitKey(group=group_id, topic=topic, partition=partition.partition_index),
        OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
            commit_timestamp=wall_ms(),
        ),
    )
