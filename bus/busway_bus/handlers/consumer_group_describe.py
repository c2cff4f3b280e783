"""ConsumerGroupDescribe (key 69, versions 0-1): state and members of consumer groups (KIP-848).

Versions: 1 says by which protocol a member came.
Behaviour: a group of another kind is answered with GROUP_ID_NOT_FOUND. Without access control everybody may do everything, and authorized
operations say so.
*Not supported*: nothing is left out.
"""

from collections.abc import Awaitable, Generator, Iterable, Mapping
from typing import Final
from uuid import UUID

from busway_bus.groups.consumer import ConsumerGroup
from busway_bus.groups.consumer_member import ConsumerMember
from busway_bus.groups.group import of_kind
from busway_bus.groups.modern import NO_PARTITIONS
from busway_bus.handlers.authorized import GROUP_OPERATIONS
from busway_bus.handlers.context import Large, RequestContext, finished
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
DESCRIBED_AT_ONCE: Final = 1
"""Groups that are described while all others wait; of more, others get their turn between."""
_CLASSIC, _CONSUMER = 0, 1


def handle(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse | Awaitable[Large]:
    """Describe each group."""
    steps = _response(request, context)
    return context.in_turns(steps) if len(request.group_ids) > DESCRIBED_AT_ONCE else finished(steps)


def _response(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> Generator[None, None, ConsumerGroupDescribeResponse]:
    """The answer, with a stop after each member; a group that is named again is looked at once."""
    described: dict[str, DescribedGroup] = {}
    for group_id in request.group_ids:
        if group_id in described:
            continue
        answer = described[group_id] = yield from _describe(group_id, context)
        if request.include_authorized_operations and answer.error_code == ErrorCode.NONE:
            answer.authorized_operations = GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(
        throttle_time_ms=0, groups=[described[group_id] for group_id in request.group_ids]
    )


def _describe(group_id: str, context: RequestContext) -> Generator[None, None, DescribedGroup]:
    try:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = of_kind(context.node.groups.group(group_id), group_id, ConsumerGroup)
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
    for member in tuple(group):
        answer.members.append(_member(group, member, context.node.image))
        yield
    return answer


def _member(group: ConsumerGroup, member: ConsumerMember, image: ClusterImage) -> Member:
    held: dict[UUID, list[int]] = {}
    for owned in (member.assigned, member.revoking):
        for topic_id, numbers in owned.items():
            held.setdefault(topic_id, []).extend(numbers)
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
    """Of topics that are gone nothing is told, as they have no name."""
    return DescribedAssignment(
        topic_partitions=[
            DescribedTopicPartitions(topic_id=topic_id, topic_name=image.names[topic_id], partitions=sorted(numbers))
            for topic_id, numbers in sorted(held.items())
            if topic_id in image.names
        ]
    )
