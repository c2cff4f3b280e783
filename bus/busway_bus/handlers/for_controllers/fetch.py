"""Fetch (key 1, versions 4-18) of the metadata log: voters copy it from their leader, observers follow it (KIP-595).

Versions: 12 is flexible and names the last epoch fetched, 13 names the log by its id, 15 moves the replica's state, 17 names its directory, 18 tells
its high watermark.
Behaviour: one topic with one partition, the metadata log, or INVALID_REQUEST. An answer with nothing new waits for max_wait_ms; one whose reader has
other records than the leader tells where they part. A voter's fetch says that all before its offset is on its disk.
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
    """What the quorum's core says, when it is on disk."""
    return await answered(request, context)
