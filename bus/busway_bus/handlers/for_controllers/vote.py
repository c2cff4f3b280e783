"""Vote (key 52, versions 0-2): a voter requests this one's vote (KIP-595).

Versions: 1 has both voters' directories (KIP-853), 2 pre-votes (KIP-996).
Behaviour: the vote is on disk before the response. It is for one candidate per epoch, with a log at least as up to date
as this one; no pre-vote is granted while a leader responds. An older epoch is FENCED_LEADER_EPOCH, a request for
another voter INVALID_VOTER_KEY.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.for_controllers.services import answered
from busway_bus.quorum.ready import QuorumResponse
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.messages.quorum import VoteRequest

API = ApiKey.VOTE
VERSIONS = (0, 2)
NEEDS = (Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),)


async def handle(request: VoteRequest, context: RequestContext) -> QuorumResponse:
    return await answered(request, context)
