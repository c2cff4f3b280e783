"""InitializeShareGroupState (key 83, version 0): initialize states of share partitions.

Behaviour: for group coordinators. An existing state is replaced; an older state epoch is FENCED_STATE_EPOCH.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.common.share_states import each
from busway_bus.kernel.share_state import SharePartitionKey
from busway_bus.metadata.features import SHARE_VERSION
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.share_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStatePartition,
    InitializeStatePartitionResult,
    InitializeStateResult,
)

API = ApiKey.INITIALIZE_SHARE_GROUP_STATE
VERSIONS = (0, 0)
FEATURE = SHARE_VERSION
NEEDS = (Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),)


async def handle(
    request: InitializeShareGroupStateRequest, context: RequestContext
) -> InitializeShareGroupStateResponse:
    states = context.node.share_states

    async def ask(key: SharePartitionKey, asked: InitializeStatePartition) -> InitializeStatePartitionResult:
        await states.initialize(key, state_epoch=asked.state_epoch, start_offset=asked.start_offset)
        return InitializeStatePartitionResult(partition=key.partition, error_code=ErrorCode.NONE)

    results = await each(request.group_id, request.topics, context, ask, _refused)
    return InitializeShareGroupStateResponse(
        results=[InitializeStateResult(topic_id=topic_id, partitions=rows) for topic_id, rows in results]
    )


def _refused(partition_index: int, code: ErrorCode, text: str) -> InitializeStatePartitionResult:
    return InitializeStatePartitionResult(partition=partition_index, error_code=code, error_message=text)
