"""ElectLeaders (key 43, versions 0-2): elect leaders of partitions.

Versions: 1 has types of election (KIP-460) and an error for the whole response, 2 is flexible.
Behaviour: a partition with the leader that is asked for answers ELECTION_NOT_NEEDED, and is omitted if all partitions
are requested. A replica leads if its broker is active and its log is online.
"""

from busway_bus.controller.elections import PREFERRED, UNCLEAN, ElectLeaders
from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
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
NEEDS = (Access(Operation.ALTER, Resource.CLUSTER),)


async def handle(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    topics = request.topic_partitions
    command = ElectLeaders(
        kind=request.election_type,
        partitions=(
            None
            if topics is None
            else tuple((topic.topic, partition_index) for topic in topics for partition_index in topic.partitions)
        ),
    )
    problems = await context.node.controller.request(command, context.for_controller)
    outcomes = [
        (
            key,
            PartitionResult(
                partition_id=key[1],
                error_code=ErrorCode.NONE if problem is None else problem.code,
                error_message=None if problem is None else problem.message,
            ),
        )
        for key, problem in problems
    ]
    if topics is None:  # Kafka lists every topic, even without results
        rows: list[tuple[str, list[PartitionResult]]] = [(name, []) for name in context.node.image.topics]
        results_of_topic = dict(rows)
        for (name, _), result in outcomes:
            results_of_topic.get(name, []).append(result)
    else:
        results = (result for _, result in outcomes)
        rows = [(topic.topic, [next(results) for _ in topic.partitions]) for topic in topics]
    supported = request.election_type in {PREFERRED, UNCLEAN}
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE if supported else ErrorCode.INVALID_REQUEST,
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=partitions) for name, partitions in rows
        ],
    )
