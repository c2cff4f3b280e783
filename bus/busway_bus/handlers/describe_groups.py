"""DescribeGroups (key 15, versions 0-6): state and members of groups.

Versions: 4 has static members, 5 is flexible, 6 returns GROUP_ID_NOT_FOUND instead of Dead.
Behaviour: protocol and subscriptions are shown while the group is stable. Groups of other kinds are unknown, with the
reason in the error text. A repeated group is described once (Kafka: each mention). COORDINATOR_LOAD_IN_PROGRESS
(retriable) for a group that would make the response too large.
"""

import contextlib
from collections.abc import Awaitable, Generator
from typing import Final

from busway_bus.groups.classic.group import ClassicGroup
from busway_bus.groups.classic.states import State
from busway_bus.groups.group import Group
from busway_bus.handlers.common.authorized import GROUP_OPERATIONS
from busway_bus.handlers.common.context import Large, RequestContext, finished
from busway_bus.handlers.common.response_room import AnswerRoom
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

API = ApiKey.DESCRIBE_GROUPS
VERSIONS = (0, 6)
NEEDS = (Access(Operation.DESCRIBE, Resource.GROUP),)
NOT_FOUND_SINCE = 6
ROW_BYTES: Final = 512


DESCRIBED_AT_ONCE: Final = 50
"""Groups, of 64 KiB of members each, described between two yields."""
_BYTES_AT_ONCE: Final = 64 * 1024


def handle(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse | Awaitable[Large]:
    steps = _response(request, context)
    return context.in_slices(steps) if _is_much(request.groups, context) else finished(steps)


def _is_much(group_ids: list[str], context: RequestContext) -> bool:
    if len(group_ids) > DESCRIBED_AT_ONCE:
        return True
    held = 0
    for group_id in group_ids:
        with contextlib.suppress(KafkaError):
            held += _size(context.node.groups.group(group_id))
    return len(group_ids) + held // _BYTES_AT_ONCE > DESCRIBED_AT_ONCE


def _size(group: Group | None) -> int:
    return ROW_BYTES + (group.roster.held_bytes if isinstance(group, ClassicGroup) else 0)


def _response(request: DescribeGroupsRequest, context: RequestContext) -> Generator[None, None, DescribeGroupsResponse]:
    groups: list[DescribedGroup] = []
    room = AnswerRoom()
    for group_id in dict.fromkeys(request.groups):
        answer = _describe(group_id, context, room)
        if request.include_authorized_operations and answer.error_code == ErrorCode.NONE:
            answer.authorized_operations = GROUP_OPERATIONS
        groups.append(answer)
        yield
    return DescribeGroupsResponse(groups=groups)


def _describe(group_id: str, context: RequestContext, room: AnswerRoom) -> DescribedGroup:
    try:
        group = context.node.groups.group(group_id)
        if not room.take(_size(group)):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    except KafkaError as problem:
        return _empty(group_id, problem.code, "")
    if not isinstance(group, ClassicGroup):
        if context.api_version >= NOT_FOUND_SINCE:
            answer = _empty(group_id, ErrorCode.GROUP_ID_NOT_FOUND, State.DEAD.value)
            known = group is not None
            answer.error_message = (
                f"Group {group_id} is not a classic group." if known else f"Group {group_id} not found."
            )
            return answer
        return _empty(group_id, ErrorCode.NONE, State.DEAD.value)
    return _described(group)


def _empty(group_id: str, code: ErrorCode, state: str) -> DescribedGroup:
    return DescribedGroup(
        error_code=code, group_id=group_id, group_state=state, protocol_type="", protocol_data="", members=[]
    )


def _described(group: ClassicGroup) -> DescribedGroup:
    stable = group.state is State.STABLE
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
