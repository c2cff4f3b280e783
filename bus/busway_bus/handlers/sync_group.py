"""SyncGroup (key 14, versions 0-5): send or fetch a generation's assignments.

Versions: 3 has static members (KIP-345), 4 is flexible, 5 must have the protocol, and returns it (KIP-559).
Behaviour: responds when the leader's assignments are on disk.
"""

from busway_bus.groups.requests import Sync
from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import SyncGroupRequest, SyncGroupResponse

API = ApiKey.SYNC_GROUP
VERSIONS = (0, 5)
NEEDS = (Access(Operation.READ, Resource.GROUP),)
PROTOCOL_SINCE = 5


async def handle(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    if context.api_version >= PROTOCOL_SINCE and None in {request.protocol_type, request.protocol_name}:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, assignment=b"")
    if not request.group_id:
        return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID, assignment=b"")
    sync = Sync(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        assignments=tuple((item.member_id, item.assignment) for item in request.assignments),
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
    )
    context.node.groups.fencing.request_received(context.peer, request.group_id, request.member_id)
    try:
        synced = await context.node.groups.sync(request.group_id, sync, context.peer.waits)
    except KafkaError as problem:
        return SyncGroupResponse(error_code=problem.code, assignment=b"")
    return SyncGroupResponse(
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )
