"""ListGroups (key 16, versions 0-5): the groups of this broker.

Versions: 3 is flexible, 4 filters by state (KIP-518), 5 by type (KIP-848).
Behaviour: groups that have only offsets are listed as Empty. All groups are classic.
*Not supported*: other types of group.
"""

from busway_bus.handlers.context import RequestContext
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import ListedGroup, ListGroupsRequest, ListGroupsResponse

API = ApiKey.LIST_GROUPS
VERSIONS = (0, 5)
CLASSIC = "classic"


def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """List them."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    found = []
    try:
        shards = context.node.groups.shards
    except KafkaError as problem:
        return ListGroupsResponse(error_code=problem.code, groups=[])
    if not types or CLASSIC in types:
        for shard in shards:
            for group_id, group in sorted(shard.groups.items()):
                if not states or group.state.value.lower() in states:
                    found.append(
                        ListedGroup(
                            group_id=group_id,
                            protocol_type=group.protocol_type or "",
                            group_state=group.state.value,
                            group_type=CLASSIC,
                        )
                    )
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=found)
