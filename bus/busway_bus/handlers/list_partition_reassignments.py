"""ListPartitionReassignments (key 46, version 0): the ongoing moves of partitions (KIP-455).

Behaviour: one node never has any; unknown partitions are omitted, as in Kafka.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.partitions import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse

API = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS = (0, 0)
NEEDS = (Access(Operation.DESCRIBE, Resource.CLUSTER),)


def handle(request: ListPartitionReassignmentsRequest, context: RequestContext) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=[])
