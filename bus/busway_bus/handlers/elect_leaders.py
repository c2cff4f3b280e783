"""ElectLeaders (key 43, versions 0-2): have partitions elect a leader.

Versions: 1 has types of election (KIP-460) and an error for the whole answer, 2 is flexible.
Behaviour: the one replica leads already: ELECTION_NOT_NEEDED, left out where all partitions are asked for. One that is offline
cannot lead.
*Not supported*: nothing is left out.
"""

from busway_bus.handlers.context import NodeServices, RequestContext
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.partitions import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

API = ApiKey.ELECT_LEADERS
VERSIONS = (0, 2)
PREFERRED, UNCLEAN = 0, 1
_NO_CANDIDATE = {
    PREFERRED: (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."),
    UNCLEAN: (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "Eligible topic partition leaders are not available.",
    ),
}
Outcome = tuple[ErrorCode, str]


def handle(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Hold every election that is asked for."""
    node, kind = context.node, request.election_type
    if request.topic_partitions is None:
        everything = [(topic.name, range(len(topic.partitions))) for topic in node.image.topics.values()]
        wanted = [(name, [number for number in all_of if _stuck(name, number, node)]) for name, all_of in everything]
    else:
        wanted = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    known = kind in _NO_CANDIDATE
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE if known else ErrorCode.INVALID_REQUEST,
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=[_one(name, number, kind, node) for number in numbers])
            for name, numbers in wanted
        ],
    )


def _one(topic: str, number: int, kind: int, node: NodeServices) -> PartitionResult:
    code, text = _elect(topic, number, kind, node)
    return PartitionResult(partition_id=number, error_code=code, error_message=text)


def _elect(topic: str, number: int, kind: int, node: NodeServices) -> Outcome:
    if kind not in _NO_CANDIDATE:
        return ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}"
    found = node.image.topics.get(topic)
    if found is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}"
    if not 0 <= number < len(found.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{number}"
    if _stuck(topic, number, node):
        return _NO_CANDIDATE[kind]
    return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."


def _stuck(topic: str, number: int, node: NodeServices) -> bool:
    return node.replicas.local.offline(topic, number)
