"""ConsumerGroupDescribe (key 69, versions 0-1): state and members of consumer groups (KIP-848).

Versions: 1 has the protocol of each member.
Behaviour: GROUP_ID_NOT_FOUND for a group of another kind. A repeated group is described once (Kafka: each mention).
COORDINATOR_LOAD_IN_PROGRESS (retriable) for a group that would make the response too large.
"""

import contextlib
from collections.abc import Awaitable, Generator, Iterable, Mapping
from typing import Final
from uuid import UUID

from busway_bus.groups.group import of_kind
from busway_bus.groups.modern.consumer_group import ConsumerGroup
from busway_bus.groups.modern.consumer_member import ConsumerMember
from busway_bus.groups.modern.group import NO_PARTITIONS
from busway_bus.handlers.common.authorized import GROUP_OPERATIONS
from busway_bus.handlers.common.context import Large, RequestContext, finished
from busway_bus.handlers.common.response_room import AnswerRoom
from busway_bus.handlers.consumer_group_heartbeat import served
from busway_bus.metadata.image import ClusterImage
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_modern import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedGroup,
    DescribedTopicPartitions,
    Member,
)

API = ApiKey.CONSUMER_GROUP_DESCRIBE
VERSIONS = (0, 1)
NEEDS = (Access(Operation.DESCRIBE, Resource.GROUP), Access(Operation.DESCRIBE, Resource.TOPIC))
DESCRIBED_AT_ONCE: Final = 20
"""Members, of 50 partitions each, described between two yields."""
_PARTITIONS_AT_ONCE: Final = 50
ROW_BYTES: Final = 512
"""Approximate bytes of a group, a member or its topic."""
PARTITION_BYTES: Final = 16
_CLASSIC, _CONSUMER = 0, 1


def handle(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse | Awaitable[Large]:
    steps = _response(request, context)
    return context.in_slices(steps) if _is_much(request.group_ids, context) else finished(steps)


def _is_much(group_ids: list[str], context: RequestContext) -> bool:
    effort = len(group_ids)
    for group_id in group_ids[:DESCRIBED_AT_ONCE]:
        with contextlib.suppress(KafkaError):
            group = context.node.groups.group(group_id)
            if isinstance(group, ConsumerGroup):
                effort += len(group.members)
                if effort > DESCRIBED_AT_ONCE:
                    break
                effort += sum(_partitions(group, member) for member in group) // _PARTITIONS_AT_ONCE
    return effort > DESCRIBED_AT_ONCE


def _partitions(group: ConsumerGroup, member: ConsumerMember) -> int:
    held = (member.assigned, member.revoking, group.target.get(member.member_id, NO_PARTITIONS))
    return sum(len(partitions) for topics in held for partitions in topics.values())


def _size(group: ConsumerGroup, member: ConsumerMember) -> int:
    topics = len(member.assigned) + len(member.revoking) + len(group.target.get(member.member_id, NO_PARTITIONS))
    return member.size_bytes + ROW_BYTES * (1 + topics) + PARTITION_BYTES * _partitions(group, member)


def _response(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> Generator[None, None, ConsumerGroupDescribeResponse]:
    groups: list[DescribedGroup] = []
    room = AnswerRoom()
    for group_id in dict.fromkeys(request.group_ids):
        answer = yield from _describe(group_id, context, room)
        if request.include_authorized_operations and answer.error_code == ErrorCode.NONE:
            answer.authorized_operations = GROUP_OPERATIONS
        groups.append(answer)
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)


def _describe(group_id: str, context: RequestContext, room: AnswerRoom) -> Generator[None, None, DescribedGroup]:
    try:
        if not served(context):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = of_kind(context.node.groups.group(group_id), group_id, ConsumerGroup)
        members = tuple(group)
        size = ROW_BYTES
        for member in members:
            size += _size(group, member)
            yield
        if not room.take(size):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    except KafkaError as problem:
        return DescribedGroup(
            error_code=problem.code,
            error_message=problem.message if problem.code is ErrorCode.GROUP_ID_NOT_FOUND else None,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )
    answer = DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor(group),
        members=[],
    )
    for member in members:
        answer.members.append(_member(group, member, context.node.image))
        yield
    return answer


def _member(group: ConsumerGroup, member: ConsumerMember, image: ClusterImage) -> Member:
    held: dict[UUID, list[int]] = {}
    for owned in (member.assigned, member.revoking):
        for topic_id, partitions in owned.items():
            held.setdefault(topic_id, []).extend(partitions)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(held, image),
        target_assignment=_assignment(group.target.get(member.member_id, NO_PARTITIONS), image),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _assignment(held: Mapping[UUID, Iterable[int]], image: ClusterImage) -> DescribedAssignment:
    """Describe an assignment, without deleted topics, which have no name."""
    return DescribedAssignment(
        topic_partitions=[
            DescribedTopicPartitions(topic_id=topic_id, topic_name=image.names[topic_id], partitions=sorted(partitions))
            for topic_id, partitions in sorted(held.items())
            if topic_id in image.names
        ]
    )
