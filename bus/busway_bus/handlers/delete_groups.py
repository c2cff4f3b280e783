"""DeleteGroups (key 42, versions 0-2): delete empty groups (KIP-229).

Behaviour: the group's offsets, and a share group's states, are deleted too.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import KafkaError
from busway_protocol.messages.groups_classic import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

API = ApiKey.DELETE_GROUPS
VERSIONS = (0, 2)
NEEDS = (Access(Operation.DELETE, Resource.GROUP),)


async def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        try:
            shared = context.node.share_groups.is_share_group(group_id)
            code = await (context.node.share_groups if shared else context.node.groups).delete(group_id)
        except KafkaError as problem:
            code = problem.code
        results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    return DeleteGroupsResponse(results=results)
