"""DescribeShareGroupOffsets (key 90, versions 0-1): start offsets of share groups (KIP-932).

Versions: 1 has the lag: the number of records that are not completed (KIP-1226).
Behaviour: an uninitialized partition has the offset -1, which is no error. A group requested with all its offsets is
returned once, and so is a repeated partition, where Kafka returns each mention. COORDINATOR_LOAD_IN_PROGRESS
(retriable) for a group that would make the response too large.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.common.response_room import AnswerRoom
from busway_bus.metadata.features import SHARE_VERSION
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.share_groups import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from busway_protocol.types import ZERO_UUID

API = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
VERSIONS = (0, 1)
FEATURE = SHARE_VERSION
NEEDS = (Access(Operation.DESCRIBE, Resource.GROUP), Access(Operation.DESCRIBE, Resource.TOPIC))
UNKNOWN: Final = -1
ROW_BYTES: Final = 256
TOGETHER: Final = 100


async def handle(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    groups: list[DescribeShareGroupOffsetsResponseGroup] = []
    whole: set[str] = set()
    room = AnswerRoom()
    for group in request.groups:
        if group.topics is None and group.group_id in whole:
            continue
        if group.topics is None:
            whole.add(group.group_id)
        groups.append(await _group(group, context, room))
    return DescribeShareGroupOffsetsResponse(throttle_time_ms=0, groups=groups)


async def _group(
    asked: DescribeShareGroupOffsetsRequestGroup, context: RequestContext, room: AnswerRoom
) -> DescribeShareGroupOffsetsResponseGroup:
    try:
        if not context.node.image.features.get(SHARE_VERSION, 0):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if asked.topics is None:
            begun = await context.node.share_groups.initialized(asked.group_id)
            names = context.node.image.names
            wanted = [
                (names[topic_id], sorted(partitions)) for topic_id, partitions in begun.items() if topic_id in names
            ]
        else:
            named: dict[str, dict[int, None]] = {}
            for topic in asked.topics:
                named.setdefault(topic.topic_name, {}).update(dict.fromkeys(topic.partitions))
            wanted = [(name, list(partitions)) for name, partitions in named.items()]
        if not room.take(ROW_BYTES * sum(1 + len(partitions) for _, partitions in wanted)):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    except KafkaError as problem:
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=asked.group_id, topics=[], error_code=problem.code, error_message=problem.message
        )
    topics = [await _topic(asked.group_id, name, partitions, context) for name, partitions in wanted]
    return DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id, topics=topics, error_code=ErrorCode.NONE)


async def _topic(
    group_id: str, name: str, partitions: Iterable[int], context: RequestContext
) -> DescribeShareGroupOffsetsResponseTopic:
    topic = context.node.image.topics.get(name)
    if topic is None:
        return DescribeShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=ZERO_UUID,
            partitions=[_unknown(partition_index) for partition_index in partitions],
        )

    async def partition(partition_index: int) -> DescribeShareGroupOffsetsResponsePartition:
        try:
            state = await context.node.share_groups.summary(group_id, topic.topic_id, partition_index)
        except KafkaError:
            return _unknown(partition_index)
        answer = DescribeShareGroupOffsetsResponsePartition(
            partition_index=partition_index,
            start_offset=state.start_offset,
            leader_epoch=state.leader_epoch,
            error_code=ErrorCode.NONE,
        )
        if UNKNOWN in {state.start_offset, state.delivery_complete_count}:
            return answer
        try:
            ends = context.node.partition_ends
            end = (
                context.node.replicas.find(name, partition_index).high_watermark
                if ends is None
                else await ends.end(name, partition_index)
            )
        except KafkaError as problem:
            return _unknown(partition_index, problem)
        # After truncation of damage a group's state may be beyond the log's end; a negative lag would mean unknown.
        answer.lag = max(end - state.start_offset - state.delivery_complete_count, 0)
        return answer

    wanted = list(partitions)
    rows: list[DescribeShareGroupOffsetsResponsePartition] = []
    for start in range(0, len(wanted), TOGETHER):
        rows += await asyncio.gather(
            *(partition(partition_index) for partition_index in wanted[start : start + TOGETHER])
        )
    return DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic.topic_id, partitions=rows)


def _unknown(partition_index: int, problem: KafkaError | None = None) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=partition_index,
        start_offset=UNKNOWN if problem is None else 0,
        leader_epoch=0,
        error_code=ErrorCode.NONE if problem is None else problem.code,
        error_message=None if problem is None else problem.message,
    )
