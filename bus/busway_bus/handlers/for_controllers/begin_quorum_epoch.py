"""BeginQuorumEpoch (key 53, versions 0-1): a leader notifies a voter that does not fetch (KIP-595).

Versions: 1 is flexible and has the voter's directory and the leader's addresses (KIP-853).
Behaviour: the voter follows once that is on its disk. A leader of an older epoch is FENCED_LEADER_EPOCH, a second one
of the same epoch INVALID_REQUEST.
*Not supported*: the leader's addresses, which are a setting of every node.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.for_controllers.services import answered
from busway_bus.quorum.ready import QuorumResponse
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.messages.quorum import BeginQuorumEpochRequest

API = ApiKey.BEGIN_QUORUM_EPOCH
VERSIONS = (0, 1)
NEEDS = (Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),)


async def handle(request: BeginQuorumEpochRequest, context: RequestContext) -> QuorumResponse:
    return await answered(request, context)
