"""JoinGroup (key 11, versions 0-9): join a group, or rejoin it.

Versions: 1 has the rebalance timeout, 4 the round trip for a member id (KIP-394), 5 static members (KIP-345), 6 is
flexible, 8 has a reason (KIP-800), 9 may make a leader skip the assignment (KIP-814).
Behaviour: responds when the rebalance is over.
"""

from busway_bus.groups.requests import Join
from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

API = ApiKey.JOIN_GROUP
VERSIONS = (0, 9)
NEEDS = (Access(Operation.READ, Resource.GROUP),)
_IS_MEMBER = frozenset({ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED})
KNOWN_ID_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_SINCE = 9


async def handle(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    if not request.group_id:
        return _failed(ErrorCode.INVALID_GROUP_ID, request, context)
    rebalance_timeout = request.rebalance_timeout_ms if context.api_version >= 1 else request.session_timeout_ms
    join = Join(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=max(rebalance_timeout, 0),
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        needs_known_id=context.api_version >= KNOWN_ID_SINCE,
        can_skip_assignment=context.api_version >= SKIP_SINCE,
        reason=request.reason,
    )
    context.node.groups.fencing.joins(context.peer, request.group_id, request.member_id)
    try:
        joined = await context.node.groups.join(request.group_id, join, context.peer)
    except KafkaError as problem:
        return _failed(problem.code, request, context)
    if joined.error in _IS_MEMBER:
        context.node.groups.fencing.joined(context.peer, request.group_id, joined.member_id)
    if joined.error is not ErrorCode.NONE:
        return _failed(joined.error, request, context, joined.member_id)
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=joined.generation,
        protocol_type=request.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in joined.members
        ],
    )


def _failed(
    code: ErrorCode, request: JoinGroupRequest, context: RequestContext, member_id: str | None = None
) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if context.api_version >= NULL_PROTOCOL_SINCE else "",
        leader="",
        member_id=request.member_id if member_id is None else member_id,
        members=[],
    )
