"""LeaveGroup (key 13, versions 0-5): take members out of a group.

Versions: 3 takes several, by instance id too (KIP-345), 4 is flexible, 5 has a reason (KIP-800).
Behaviour: each member for itself; the rest rebalances.
*Not supported*: nothing is left out.
"""

from busway_bus.handlers.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

API = ApiKey.LEAVE_GROUP
VERSIONS = (0, 5)
NEEDS = (Access(Operation.READ, Resource.GROUP),)
BATCHED_SINCE = 3


def handle(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Take each one out."""
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    batched = context.api_version >= BATCHED_SINCE
    members = request.members if batched else [MemberIdentity(member_id=request.member_id)]
    groups = context.node.groups
    results = []
    try:
        for member in members:
            code = groups.leave(request.group_id, member.member_id, member.group_instance_id)
            results.append(
                MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code)
            )
    except KafkaError as problem:
        return LeaveGroupResponse(error_code=problem.code)
    if not batched:
        return LeaveGroupResponse(error_code=results[0].error_code)
    return LeaveGroupResponse(error_code=ErrorCode.NONE, members=results)
