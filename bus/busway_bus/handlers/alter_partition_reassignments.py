"""AlterPartitionReassignments (key 45, versions 0-1): move partitions to other brokers (KIP-455).

Versions: 1 says whether the number of replicas may change, which it cannot here.
Behaviour: a partition that is to lie where it lies is moved at once; another broker is refused, there is none.
*Not supported*: nothing is left out.
"""

from busway_bus.controller.reassign import check_move
from busway_bus.handlers.context import RequestContext
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


def handle(request: AlterPartitionReassignmentsRequest, context: RequestContext) -> AlterPartitionReassignmentsResponse:
    """Judge each partition for itself."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None if request.topics else "",  # as Kafka fills it in
        responses=[
            ReassignableTopicResponse(
                name=topic.name, partitions=[_one(topic.name, partition, context) for partition in topic.partitions]
            )
            for topic in request.topics
        ],
    )


def _one(topic: str, partition: ReassignablePartition, context: RequestContext) -> ReassignablePartitionResponse:
    number, node = partition.partition_index, context.node
    code, text = ErrorCode.NONE, None
    try:
        check_move(node.image, topic, number, partition.replicas, node.node_id)
    except KafkaError as problem:
        code, text = problem.code, problem.message
    if code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
        text = None  # as Kafka answers it: nothing is wrong with the request
    return ReassignablePartitionResponse(partition_index=number, error_code=code, error_message=text)
