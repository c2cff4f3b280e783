"""EndQuorumEpoch (key 54, versions 0-1): a resigning leader names its successors (KIP-595).

Versions: 1 is flexible and has the successors' directories and the leader's addresses (KIP-853).
Behaviour: the first successor becomes a candidate at once, each further one waits twice as long as the one before.
*Not supported*: the leader's addresses, which are a setting of every node.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.for_controllers.services import answered
from busway_bus.quorum.ready import QuorumResponse
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.messages.quorum import EndQuorumEpochRequest

API = ApiKey.END_QUORUM_EPOCH
VERSIONS = (0, 1)
NEEDS = (Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),)


async def handle(request: EndQuorumEpochRequest, context: RequestContext) -> QuorumResponse:
    return await answered(request, context)
