"""ListGroups (key 16, versions 0-5): the groups of this broker.

Versions: 3 is flexible, 4 filters by state (KIP-518), 5 by type (KIP-848).
Behaviour: groups with only offsets are listed as Empty.
"""

from collections.abc import Awaitable, Generator
from typing import Final

from busway_bus.groups.group import Group
from busway_bus.handlers.common.context import Large, RequestContext, finished
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import ListedGroup, ListGroupsRequest, ListGroupsResponse

API = ApiKey.LIST_GROUPS
VERSIONS = (0, 5)
NEEDS = (Access(Operation.DESCRIBE, Resource.CLUSTER), Access(Operation.DESCRIBE, Resource.GROUP))


LISTED_AT_ONCE: Final = 1_000


def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse | Awaitable[Large]:
    types = {kind.lower() for kind in request.types_filter}
    try:
        groups = context.node.groups.groups()
    except KafkaError as problem:
        return ListGroupsResponse(error_code=problem.code, groups=[])
    if types:
        groups = [group for group in groups if group.kind.value in types]
    steps = _listed(groups, {state.lower() for state in request.states_filter})
    return context.in_slices(steps) if len(groups) > LISTED_AT_ONCE else finished(steps)


def _listed(groups: list[Group], states: set[str]) -> Generator[None, None, ListGroupsResponse]:
    listed = []
    for group in groups:
        if not states or group.state_name.lower() in states:
            listed.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.listed_type,
                    group_state=group.state_name,
                    group_type=group.kind.value,
                )
            )
        yield
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=listed)
