"""Vote (key 52, versions 0-2): a voter asks for the vote of this one (KIP-595).

Versions: 1 names the directories of both (KIP-853), 2 has pre-votes (KIP-996).
Behaviour: the vote is on disk before the answer leaves. It is given to one candidate an epoch, whose log has at least what this one has; what it would
be is told to nobody while a leader answers. An older epoch is FENCED_LEADER_EPOCH, a vote asked of another voter INVALID_VOTER_KEY.
*Not supported*: nothing is left out.
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
    """What the quorum's core says, when it is on disk."""
    return await answered(request, context)
