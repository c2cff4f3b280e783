"""Heartbeat (key 12, versions 0-4): extend a member's session.

Versions: 3 has static members (KIP-345), 4 is flexible.
Behaviour: REBALANCE_IN_PROGRESS makes the member rejoin. A member whose connection is closed is fenced after
`group.disconnect.grace.ms`; Kafka waits for the session timeout.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import HeartbeatRequest, HeartbeatResponse

API = ApiKey.HEARTBEAT
VERSIONS = (0, 4)
NEEDS = (Access(Operation.READ, Resource.GROUP),)
_ALIVE = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})


def handle(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        code = context.node.groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    except KafkaError as problem:
        code = problem.code
    if code in _ALIVE:
        context.node.groups.fencing.request_received(context.peer, request.group_id, request.member_id, heartbeat=True)
    return HeartbeatResponse(error_code=code)
