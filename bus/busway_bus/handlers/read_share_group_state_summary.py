"""ReadShareGroupStateSummary (key 87, versions 0-1): read start offsets of share partitions, for group coordinators.

Versions: 1 counts the records whose delivery is complete (KIP-1226).
Behaviour: for brokers. An uninitialized state has the start -1.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.common.share_states import each
from busway_bus.kernel.share_state import SharePartitionKey
from busway_bus.metadata.features import SHARE_VERSION
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.share_state import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStatePartition,
    ReadStateSummaryResult,
    ReadSummaryStatePartitionResult,
)

API = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
VERSIONS = (0, 1)
FEATURE = SHARE_VERSION
NEEDS = (Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),)


async def handle(
    request: ReadShareGroupStateSummaryRequest, context: RequestContext
) -> ReadShareGroupStateSummaryResponse:
    states = context.node.share_states

    async def ask(key: SharePartitionKey, asked: ReadStatePartition) -> ReadSummaryStatePartitionResult:
        state = await states.summary(key)
        return ReadSummaryStatePartitionResult(
            partition=key.partition,
            error_code=ErrorCode.NONE,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )

    results = await each(request.group_id, request.topics, context, ask, _refused)
    return ReadShareGroupStateSummaryResponse(
        results=[ReadStateSummaryResult(topic_id=topic_id, partitions=rows) for topic_id, rows in results]
    )


def _refused(partition_index: int, code: ErrorCode, text: str) -> ReadSummaryStatePartitionResult:
    return ReadSummaryStatePartitionResult(
        partition=partition_index, error_code=code, error_message=text, state_epoch=0, leader_epoch=0, start_offset=0
    )
