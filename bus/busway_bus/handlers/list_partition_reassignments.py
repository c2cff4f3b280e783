"""ListPartitionReassignments (key 46, version 0): the ongoing moves of partitions (KIP-455).

Behaviour: partitions that do not move, or do not exist, are omitted, as in Kafka.
"""

from collections.abc import Iterator

from busway_bus.handlers.common.context import RequestContext
from busway_bus.metadata.image import ClusterImage, PartitionImage
from busway_bus.metadata.partition_places import MOVING, partitions_at
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.partitions import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

API = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS = (0, 0)
NEEDS = (Access(Operation.DESCRIBE, Resource.CLUSTER),)


def handle(request: ListPartitionReassignmentsRequest, context: RequestContext) -> ListPartitionReassignmentsResponse:
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for topic, partition_index, partition in _moving(request, context.node.image):
        topics.setdefault(topic, []).append(
            OngoingPartitionReassignment(
                partition_index=partition_index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
            )
        )
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=[OngoingTopicReassignment(name=name, partitions=partitions) for name, partitions in topics.items()],
    )


def _moving(
    request: ListPartitionReassignmentsRequest, image: ClusterImage
) -> Iterator[tuple[str, int, PartitionImage]]:
    if request.topics is None:
        yield from partitions_at(image, MOVING)
        return
    for topic in request.topics:
        for partition_index in topic.partition_indexes:
            partition = image.partition(topic.name, partition_index)
            if partition is not None and (partition.removing or partition.adding):
                yield topic.name, partition_index, partition
