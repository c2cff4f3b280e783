"""ShareGroupDescribe (key 77, version 1): state and members of share groups (KIP-932).

Versions: 1 is the first stable one.
Behaviour: GROUP_ID_NOT_FOUND without a share group of that name. A repeated group is described once (Kafka: each
mention). COORDINATOR_LOAD_IN_PROGRESS (retriable) for a group that would make the response too large.
"""

from collections.abc import Generator
from typing import Final

from busway_bus.coordinator.share_group_coordinator import DescribedShareGroup
from busway_bus.groups.share.assignor import NAME
from busway_bus.groups.share.group import ShareMember
from busway_bus.handlers.common.authorized import GROUP_OPERATIONS
from busway_bus.handlers.common.context import Large, RequestContext, finished
from busway_bus.handlers.common.response_room import AnswerRoom
from busway_bus.metadata.features import SHARE_VERSION
from busway_bus.metadata.image import ClusterImage
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.share_groups import (
    DescribedAssignment,
    DescribedGroup,
    DescribedTopicPartitions,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

API = ApiKey.SHARE_GROUP_DESCRIBE
VERSIONS = (1, 1)
FEATURE = SHARE_VERSION
NEEDS = (Access(Operation.DESCRIBE, Resource.GROUP), Access(Operation.DESCRIBE, Resource.TOPIC))


DESCRIBED_AT_ONCE: Final = 20
"""Members, of 50 partitions each, described between two yields."""
_PARTITIONS_AT_ONCE: Final = 50
ROW_BYTES: Final = 512
"""Approximate bytes of a group, a member or its topic."""
Described = dict[str, DescribedShareGroup | KafkaError]


async def handle(request: ShareGroupDescribeRequest, context: RequestContext) -> ShareGroupDescribeResponse | Large:
    described: Described = {}
    for group_id in dict.fromkeys(request.group_ids):
        described[group_id] = await _find(group_id, context)
    steps = _response(described, request, context.node.image)
    return await context.in_slices(steps) if _is_much(described) else finished(steps)


async def _find(group_id: str, context: RequestContext) -> DescribedShareGroup | KafkaError:
    try:
        if not context.node.image.features.get(SHARE_VERSION, 0):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return await context.node.share_groups.describe(group_id)
    except KafkaError as problem:
        return problem


def _is_much(described: Described) -> bool:
    effort = len(described)
    for group in described.values():
        if isinstance(group, KafkaError):
            continue
        effort += len(group.members)
        if effort > DESCRIBED_AT_ONCE:
            break
        effort += sum(len(partitions) for member in group.members for partitions in member.assigned.values()) // (
            _PARTITIONS_AT_ONCE
        )
    return effort > DESCRIBED_AT_ONCE


def _response(
    described: Described, request: ShareGroupDescribeRequest, image: ClusterImage
) -> Generator[None, None, ShareGroupDescribeResponse]:
    groups: list[DescribedGroup] = []
    room = AnswerRoom()
    for group_id, group in described.items():
        if isinstance(group, KafkaError):
            code = group.code
            groups.append(_refused(group_id, code, None if code is ErrorCode.INVALID_GROUP_ID else group.message))
            yield
            continue
        size = ROW_BYTES
        for member in group.members:
            size += member.size_bytes + ROW_BYTES * (1 + len(member.assigned))
            yield
        if not room.take(size):
            groups.append(_refused(group_id, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None))
            continue
        answer = _described(group_id, group)
        for member in group.members:
            answer.members.append(_member(member, image))
            yield
        if request.include_authorized_operations:
            answer.authorized_operations = GROUP_OPERATIONS
        groups.append(answer)
    return ShareGroupDescribeResponse(throttle_time_ms=0, groups=groups)


def _refused(group_id: str, code: ErrorCode, text: str | None) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=text,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _described(group_id: str, group: DescribedShareGroup) -> DescribedGroup:
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=NAME,
        members=[],
    )


def _member(member: ShareMember, image: ClusterImage) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=DescribedAssignment(
            topic_partitions=[
                DescribedTopicPartitions(
                    topic_id=topic_id, topic_name=image.names[topic_id], partitions=list(partitions)
                )
                for topic_id, partitions in sorted(member.assigned.items())
                if topic_id in image.names
            ]
        ),
    )
