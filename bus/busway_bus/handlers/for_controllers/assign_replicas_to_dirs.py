"""AssignReplicasToDirs (key 73, version 0): a broker names the directories of its replicas (KIP-858).

Behaviour: as Kafka's controller. A replica in a directory that the broker does not have online leaves leadership and
ISR. Errors by partition: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER for one that is not the
broker's.
"""

from busway_bus.controller.directories import AssignReplicasToDirs
from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.partitions import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectory,
    AssignReplicasToDirsResponsePartition,
    AssignReplicasToDirsResponseTopic,
)

API = ApiKey.ASSIGN_REPLICAS_TO_DIRS
VERSIONS = (0, 0)
NEEDS = (Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),)


async def handle(request: AssignReplicasToDirsRequest, context: RequestContext) -> AssignReplicasToDirsResponse:
    command = AssignReplicasToDirs(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        assignments=tuple(
            (directory.id, topic.topic_id, partition.partition_index)
            for directory in request.directories
            for topic in directory.topics
            for partition in topic.partitions
        ),
    )
    try:
        replies = await context.node.controller.request(command, context.for_controller)
    except KafkaError as problem:
        return AssignReplicasToDirsResponse(error_code=problem.code, directories=[])
    codes = iter(replies)
    return AssignReplicasToDirsResponse(
        error_code=ErrorCode.NONE,
        directories=[
            AssignReplicasToDirsResponseDirectory(
                id=directory.id,
                topics=[
                    AssignReplicasToDirsResponseTopic(
                        topic_id=topic.topic_id,
                        partitions=[
                            AssignReplicasToDirsResponsePartition(
                                partition_index=partition.partition_index, error_code=next(codes)
                            )
                            for partition in topic.partitions
                        ],
                    )
                    for topic in directory.topics
                ],
            )
            for directory in request.directories
        ],
    )
