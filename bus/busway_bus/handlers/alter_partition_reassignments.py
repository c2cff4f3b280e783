"""AlterPartitionReassignments (key 45, versions 0-1): move partitions to other brokers (KIP-455).

Versions: 1 says whether the number of replicas may change.
Behaviour: as Kafka's controller. A move ends once its new replicas are in sync; null replicas cancel it. One to the
current brokers is done at once.
*Not supported*: throttles: a move copies as fast as it can
"""

from busway_bus.controller.reassign import AlterPartitionReassignments, Move
from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.partitions import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

API = ApiKey.ALTER_PARTITION_REASSIGNMENTS
VERSIONS = (0, 1)
NEEDS = (Access(Operation.ALTER, Resource.CLUSTER),)


async def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    moves = tuple(
        Move(
            topic=topic.name,
            partition=partition.partition_index,
            replicas=None if partition.replicas is None else tuple(partition.replicas),
        )
        for topic in request.topics
        for partition in topic.partitions
    )
    command = AlterPartitionReassignments(moves=moves, may_change_factor=request.allow_replication_factor_change)
    replies = await context.node.controller.request(command, context.for_controller)
    problems = iter(replies)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None if request.topics else "",  # as in Kafka
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_response(partition, next(problems)) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _response(partition: ReassignablePartition, problem: KafkaError | None) -> ReassignablePartitionResponse:
    code, text = (ErrorCode.NONE, None) if problem is None else (problem.code, problem.message)
    if code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
        text = None  # as in Kafka: the request is valid
    return ReassignablePartitionResponse(partition_index=partition.partition_index, error_code=code, error_message=text)
