"""Fetch (key 1, versions 4-18) of the metadata log, for voters and observers (KIP-595).

Versions: 12 is flexible and has the last fetched epoch, 13 the log's id, 15 moves the replica's state, 17 has its
directory, 18 its high watermark.
Behaviour: the metadata log's partition alone, or INVALID_REQUEST. Without news a response waits for max_wait_ms. If the
replica's log diverges, it has the offset of divergence. A voter's fetch acknowledges that everything before its offset
is on its disk.
*Not supported*: sessions; each answer is whole.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.for_controllers.services import answered
from busway_bus.quorum.ready import QuorumResponse
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.messages.fetch import FetchRequest

API = ApiKey.FETCH
VERSIONS = (4, 18)
NEEDS = (Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),)


async def handle(request: FetchRequest, context: RequestContext) -> QuorumResponse:
    return await answered(request, context)
