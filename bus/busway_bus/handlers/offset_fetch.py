"""OffsetFetch (key 9, versions 1-10): committed offsets of groups.

Versions: 2 requests all topics with null, 5 has the leader epoch, 6 is flexible, 7 can request stable offsets
(KIP-447), 8 many groups (KIP-709), 9 has member epochs (KIP-848), 10 topic ids.
Behaviour: a partition without an offset, or with one of an earlier topic of the name, has -1. A request for stable
offsets gets UNSTABLE_OFFSET_COMMIT for a partition whose offset an open transaction may change. A repeated topic or
partition is returned once (Kafka: each mention). COORDINATOR_LOAD_IN_PROGRESS (retriable) for a group that would make
the response too large.
"""

import contextlib
from collections.abc import Generator, Iterable, Sequence
from typing import Final
from uuid import UUID

from busway_bus.groups.offsets import CommittedOffset
from busway_bus.handlers.common.context import Large, RequestContext, finished
from busway_bus.handlers.common.response_room import AnswerRoom
from busway_bus.metadata.image import ClusterImage
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from busway_protocol.types import ZERO_UUID

API = ApiKey.OFFSET_FETCH
VERSIONS = (1, 10)
NEEDS = (Access(Operation.DESCRIBE, Resource.GROUP), Access(Operation.DESCRIBE, Resource.TOPIC))
GROUP_ERROR_SINCE = 2
GROUPS_SINCE = 8
FETCHED_AT_ONCE: Final = 1_000
"""Offsets returned without splitting."""
ROW_BYTES: Final = 256
"""Approximate bytes of a topic or an offset without metadata."""
TOPIC_IDS_SINCE = 10
NOTHING = CommittedOffset(offset=-1, leader_epoch=-1, metadata="", commit_timestamp_ms=-1)

UNSTABLE = CommittedOffset(offset=-1, leader_epoch=-1, metadata="", commit_timestamp_ms=-1)
"""An offset that an open transaction may change."""
UNSTABLE_FIRST = CommittedOffset(offset=-1, leader_epoch=-1, metadata="", commit_timestamp_ms=-1)
"""The only offset of a partition is pending in an open transaction.

A request for the partition gets UNSTABLE_OFFSET_COMMIT; one for all offsets omits it, as in Kafka.
"""

Table = dict[tuple[str, int], CommittedOffset]
TopicPartitions = list[tuple[str | None, UUID, Sequence[int]]]


async def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse | Large:
    if context.api_version >= GROUPS_SINCE:
        return await _groups(request.groups, context, stable=request.require_stable)
    try:
        table = await _table(request.group_id, context, stable=request.require_stable)
        code = ErrorCode.NONE
    except KafkaError as problem:
        table, code = {}, problem.code
        if context.api_version >= GROUP_ERROR_SINCE:
            return OffsetFetchResponse(error_code=code, topics=[])
    topics = (
        _all(table)
        if request.topics is None
        else _once((topic.name, ZERO_UUID, topic.partition_indexes) for topic in request.topics)
    )
    steps = _one_group(topics, table, code)
    much = sum(len(partitions) for _, _, partitions in topics) > FETCHED_AT_ONCE
    return await context.in_slices(steps) if much else finished(steps)


def _once(topics: Iterable[tuple[str | None, UUID, Sequence[int]]]) -> TopicPartitions:
    asked: dict[tuple[str | None, UUID], dict[int, None]] = {}
    for name, topic_id, partitions in topics:
        asked.setdefault((name, topic_id), {}).update(dict.fromkeys(partitions))
    return [(name, topic_id, tuple(partitions)) for (name, topic_id), partitions in asked.items()]


def _one_group(topics: TopicPartitions, table: Table, code: ErrorCode) -> Generator[None, None, OffsetFetchResponse]:
    """Build the response of versions before 8; yield after each topic."""
    answer = OffsetFetchResponse(error_code=code, topics=[])
    for name, _, partitions in topics:
        answer.topics.append(
            OffsetFetchResponseTopic(
                name=name or "",
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition_index,
                        committed_offset=committed.offset,
                        committed_leader_epoch=committed.leader_epoch,
                        metadata=committed.metadata,
                        error_code=_code(name, committed, code),
                    )
                    for partition_index, committed in _committed(table, name, partitions)
                ],
            )
        )
        yield
    return answer


async def _groups(
    groups: Sequence[OffsetFetchRequestGroup], context: RequestContext, *, stable: bool
) -> OffsetFetchResponse | Large:
    if _count(groups, context) <= FETCHED_AT_ONCE:
        return await _many(groups, context, stable=stable)
    answers = context.node.large_answers
    await answers.begin(context.client_host)
    try:
        return Large(await _many(groups, context, stable=stable), over=answers.end)
    except BaseException:
        answers.end()
        raise


def _count(groups: Sequence[OffsetFetchRequestGroup], context: RequestContext) -> int:
    count = len(groups)
    for group in groups:
        if group.topics is not None:
            count += sum(len(topic.partition_indexes) for topic in group.topics)
            continue
        with contextlib.suppress(KafkaError):
            count += len(context.node.groups.shard(group.group_id).offsets.get(group.group_id, ()))
    return count


async def _many(
    groups: Sequence[OffsetFetchRequestGroup], context: RequestContext, *, stable: bool
) -> OffsetFetchResponse:
    """Collect several groups; a repeated one with all offsets is returned once."""
    answers: list[OffsetFetchResponseGroup] = []
    room = AnswerRoom()
    whole: set[str] = set()
    for group in groups:
        if group.topics is None and group.group_id in whole:
            continue
        if group.topics is None:
            whole.add(group.group_id)
        try:
            table = await _table(
                group.group_id, context, stable=stable, member_id=group.member_id, epoch=group.member_epoch
            )
        except KafkaError as problem:
            answers.append(OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=problem.code))
        else:
            if group.member_id is not None and group.member_epoch >= 0:
                context.node.groups.connections.lives(context.peer, (group.group_id, group.member_id))
            topics = _topics(group, table, context)
            if room.take(_size(topics, table)):
                answers.append(await context.node.scheduler.run(context.client_host, _group(group, topics, table)))
            else:
                full = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                answers.append(OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=full))
    return OffsetFetchResponse(groups=answers)


def _topics(group: OffsetFetchRequestGroup, table: Table, context: RequestContext) -> TopicPartitions:
    image = context.node.image
    if group.topics is None:
        return [(name, _id(image, name), partitions) for name, _, partitions in _all(table)]
    by_id = context.api_version >= TOPIC_IDS_SINCE
    asked = _once(
        (image.names.get(topic.topic_id) if by_id else topic.name, topic.topic_id, topic.partition_indexes)
        for topic in group.topics
    )
    return sorted(asked, key=lambda topic: topic[0] is None)  # unknown topics last, as in Kafka


def _size(topics: TopicPartitions, table: Table) -> int:
    return sum(
        ROW_BYTES * (1 + len(partitions))
        + sum(len(committed.metadata) for _, committed in _committed(table, name, partitions))
        for name, _, partitions in topics
    )


def _group(
    group: OffsetFetchRequestGroup, topics: TopicPartitions, table: Table
) -> Generator[None, None, OffsetFetchResponseGroup]:
    answer = OffsetFetchResponseGroup(group_id=group.group_id, error_code=ErrorCode.NONE, topics=[])
    for name, topic_id, partitions in topics:
        answer.topics.append(
            OffsetFetchResponseTopics(
                name=name or "",
                topic_id=topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=partition_index,
                        committed_offset=committed.offset,
                        committed_leader_epoch=committed.leader_epoch,
                        metadata=committed.metadata,
                        error_code=_code(name, committed, ErrorCode.NONE),
                    )
                    for partition_index, committed in _committed(table, name, partitions)
                ],
            )
        )
        yield
    return answer


def _code(name: str | None, committed: CommittedOffset, code: ErrorCode) -> ErrorCode:
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if committed is UNSTABLE or committed is UNSTABLE_FIRST else code


def _id(image: ClusterImage, name: str | None) -> UUID:
    """Return a topic's id; zero if it was deleted meanwhile."""
    topic = image.topics.get(name or "")
    return topic.topic_id if topic is not None else ZERO_UUID


async def _table(
    group_id: str, context: RequestContext, *, stable: bool, member_id: str | None = None, epoch: int = -1
) -> Table:
    """Return a group's offsets once durable: a crash must not revoke them.

    If stable ones are requested, those that an open transaction may change are `UNSTABLE`. Offsets of deleted topics
    are not returned, nor for a new topic of the name.
    """
    offsets, pending = await context.node.groups.offsets(group_id, member_id, epoch)
    topics = context.node.image.topics
    table = {
        (name, partition_index): committed
        for (name, partition_index), committed in offsets.items()
        if name in topics and committed.of_topic(topics[name].topic_id)
    }
    if stable:
        table |= {
            partition: UNSTABLE if partition in table else UNSTABLE_FIRST
            for partition in pending
            if partition[0] in topics
        }
    return table


def _all(table: dict[tuple[str, int], CommittedOffset]) -> TopicPartitions:
    by_topic: dict[str, list[int]] = {}
    for (topic, partition_index), committed in table.items():
        if committed is not UNSTABLE_FIRST:
            by_topic.setdefault(topic, []).append(partition_index)
    return [(topic, ZERO_UUID, sorted(partitions)) for topic, partitions in by_topic.items()]


def _committed(
    table: dict[tuple[str, int], CommittedOffset], name: str | None, partitions: Sequence[int]
) -> Iterable[tuple[int, CommittedOffset]]:
    for partition_index in partitions:
        yield partition_index, table.get((name or "", partition_index), NOTHING)
