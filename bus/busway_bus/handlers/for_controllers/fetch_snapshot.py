"""FetchSnapshot (key 59, versions 0-1) of the metadata log, for voters and observers (KIP-630).

Versions: 1 has the replica's directory and addresses of leaders (KIP-853).
Behaviour: the leader answers with bytes of the snapshot from the position on, at most max_bytes and
`controller.quorum.fetch.snapshot.max.bytes`. A deleted snapshot is SNAPSHOT_NOT_FOUND, a position behind its end
POSITION_OUT_OF_RANGE, another partition UNKNOWN_TOPIC_OR_PARTITION.
*Not supported*: addresses of leaders, which are a setting of every node.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.for_controllers.services import answered
from busway_bus.quorum.ready import QuorumResponse
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.messages.metadata_snapshots import FetchSnapshotRequest

API = ApiKey.FETCH_SNAPSHOT
VERSIONS = (0, 1)
NEEDS = (Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),)


async def handle(request: FetchSnapshotRequest, context: RequestContext) -> QuorumResponse:
    return await answered(request, context)
