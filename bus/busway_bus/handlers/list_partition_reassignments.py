"""ListPartitionReassignments (key 46, version 0): the moves of partitions that are under way (KIP-455).

Behaviour: none ever is, on one node; what is asked about and does not exist is left out, as in Kafka.
*Not supported*: nothing is left out.
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
    """None."""
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=[])
