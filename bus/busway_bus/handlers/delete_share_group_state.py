"""DeleteShareGroupState (key 86, version 0): delete states of share partitions.

Behaviour: for group coordinators. A missing state is no error.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.common.share_states import each
from busway_bus.kernel.share_state import SharePartitionKey
from busway_bus.metadata.features import SHARE_VERSION
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.share_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStatePartition,
    DeleteStateResult,
    InitializeStatePartitionResult,
)

API = ApiKey.DELETE_SHARE_GROUP_STATE
VERSIONS = (0, 0)
FEATURE = SHARE_VERSION
NEEDS = (Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),)


async def handle(request: DeleteShareGroupStateRequest, context: RequestContext) -> DeleteShareGroupStateResponse:
    states = context.node.share_states

    async def ask(key: SharePartitionKey, asked: DeleteStatePartition) -> InitializeStatePartitionResult:
        await states.delete(key)
        return InitializeStatePartitionResult(partition=key.partition, error_code=ErrorCode.NONE)

    results = await each(request.group_id, request.topics, context, ask, _refused)
    return DeleteShareGroupStateResponse(
        results=[DeleteStateResult(topic_id=topic_id, partitions=rows) for topic_id, rows in results]
    )


def _refused(partition_index: int, code: ErrorCode, text: str) -> InitializeStatePartitionResult:
    return InitializeStatePartitionResult(partition=partition_index, error_code=code, error_message=text)
