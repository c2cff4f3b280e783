"""OffsetCommit (key 8, versions 2-10): store how far a group has read.

Versions: 2 to 4 say how long the offset is kept, 6 has the leader epoch (KIP-320), 7 static members (KIP-345), 8 is flexible, 9
member epochs (KIP-848) and GROUP_ID_NOT_FOUND where older ones say ILLEGAL_GENERATION, 10 topic ids.
Behaviour: by a member of the current generation, or by anyone while the group is empty; the text stored with an offset comes back.
*Not supported*: member epochs; such groups do not exist here.
"""

from uuid import UUID

from busway_bus.groups.offsets import CommittedOffset
from busway_bus.groups.records import OffsetCommitKey
from busway_bus.groups.shard import Change
from busway_bus.handlers.context import RequestContext
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
from busway_protocol.types import ZERO_UUID

API = ApiKey.OFFSET_COMMIT
VERSIONS = (2, 10)
TOPIC_IDS_SINCE = 10
NOT_FOUND_SINCE = 9


async def handle(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    """Check the member, write the offsets, answer when they are on disk."""
    changes: list[Change] = []
    topics = []
    whole = _refused(request, context)
    now = context.node.machine.wall_ms()
    for topic in request.topics:
        name = _name(topic, context)
        known = context.node.image.topics.get(name or "")
        topic_id = known.topic_id if known is not None else ZERO_UUID
        partitions = []
        for partition in topic.partitions:
            code = _check(name, partition, context)
            if code is ErrorCode.NONE:
                code = whole
            if code is ErrorCode.NONE and _too_long(partition.committed_metadata, context):
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            if code is ErrorCode.NONE:
                key = OffsetCommitKey(group=request.group_id, topic=name or "", partition=partition.partition_index)
                changes.append((key, _committed(topic_id, partition, now, request.retention_time_ms).record()))
            partitions.append(OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code))
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    try:
        await context.node.groups.write(request.group_id, changes)
    except KafkaError as problem:
        for answer in topics:
            for partition_answer in answer.partitions:
                partition_answer.error_code = partition_answer.error_code or problem.code
    return OffsetCommitResponse(topics=topics)


def _refused(request: OffsetCommitRequest, context: RequestContext) -> ErrorCode:
    try:
        return context.node.groups.check_commit(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
        )
    except KafkaError as problem:
        if problem.code is ErrorCode.GROUP_ID_NOT_FOUND and context.api_version < NOT_FOUND_SINCE:
            return ErrorCode.ILLEGAL_GENERATION
        return problem.code


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
    return ErrorCode.NONE


def _too_long(metadata: str | None, context: RequestContext) -> bool:
    limit: int = context.node.config.get("offset.metadata.max.bytes")
    return len((metadata or "").encode()) > limit


def _committed(topic_id: UUID, partition: OffsetCommitRequestPartition, now: int, retention_ms: int) -> CommittedOffset:
    return CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now,
        topic_id=topic_id,
        expire_timestamp_ms=-1 if retention_ms < 0 else now + retention_ms,
    )
