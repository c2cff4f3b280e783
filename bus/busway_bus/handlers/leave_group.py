"""LeaveGroup (key 13, versions 0-5): remove members from a group.

Versions: 3 has several, also by instance id (KIP-345), 4 is flexible, 5 has a reason (KIP-800).
Behaviour: members are independent; the rest rebalances.
"""

from busway_bus.handlers.common.context import RequestContext
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


async def handle(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Remove the members; respond once that is durable."""
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    batched = context.api_version >= BATCHED_SINCE
    members = request.members if batched else [MemberIdentity(member_id=request.member_id)]
    identities = [(member.member_id, member.group_instance_id) for member in members]
    try:
        reasons = [member.reason for member in members]
        codes = await context.node.groups.leave(request.group_id, identities, reasons)
    except KafkaError as problem:
        return LeaveGroupResponse(error_code=problem.code)
    if not batched:
        return LeaveGroupResponse(error_code=codes[0])
    results = [
        MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
        for (member_id, instance_id), code in zip(identities, codes, strict=True)
    ]
    return LeaveGroupResponse(error_code=ErrorCode.NONE, members=results)
