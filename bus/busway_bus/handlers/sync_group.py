"""SyncGroup (key 14, versions 0-5): hand in or fetch the assignments of a generation.

Versions: 3 has static members (KIP-345), 4 is flexible, 5 repeats the protocol (KIP-559).
Behaviour: answers when the leader has handed its assignments in and they are on disk.
*Not supported*: nothing is left out.
"""

from busway_bus.handlers.context import RequestContext
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import SyncGroupRequest, SyncGroupResponse

API = ApiKey.SYNC_GROUP
VERSIONS = (0, 5)


async def handle(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    """Sync, and wait for the leader."""
    assignments = [(item.member_id, item.assignment) for item in request.assignments]
    groups = context.node.groups
    try:
        group = groups.shard(request.group_id).groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        named = (request.protocol_type, request.protocol_name)
        if any(
            name is not None and name != known
            for name, known in zip(named, (group.protocol_type, group.protocol), strict=True)
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        synced = await groups.sync(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id, assignments
        )
    except KafkaError as problem:
        return SyncGroupResponse(error_code=problem.code, assignment=b"")
    return SyncGroupResponse(
        error_code=synced.error,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=synced.assignment,
    )
