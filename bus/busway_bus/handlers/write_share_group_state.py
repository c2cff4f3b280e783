"""WriteShareGroupState (key 85, versions 0-1): write states of share partitions, for partition leaders.

Versions: 1 counts the records whose delivery is complete (KIP-1226).
Behaviour: for brokers. Batches are merged into existing ones; an older state or leader epoch is refused.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.common.share_states import each
from busway_bus.kernel.share_state import SharePartitionKey, ShareState, StateBatch
from busway_bus.metadata.features import SHARE_VERSION
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.share_state import (
    InitializeStatePartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStatePartition,
    WriteStateResult,
)

API = ApiKey.WRITE_SHARE_GROUP_STATE
VERSIONS = (0, 1)
FEATURE = SHARE_VERSION
NEEDS = (Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),)


async def handle(request: WriteShareGroupStateRequest, context: RequestContext) -> WriteShareGroupStateResponse:
    states = context.node.share_states

    async def ask(key: SharePartitionKey, asked: WriteStatePartition) -> InitializeStatePartitionResult:
        await states.write(key, _change(asked))
        return InitializeStatePartitionResult(partition=key.partition, error_code=ErrorCode.NONE)

    results = await each(request.group_id, request.topics, context, ask, _refused)
    return WriteShareGroupStateResponse(
        results=[WriteStateResult(topic_id=topic_id, partitions=rows) for topic_id, rows in results]
    )


def _change(asked: WriteStatePartition) -> ShareState:
    return ShareState(
        state_epoch=asked.state_epoch,
        leader_epoch=asked.leader_epoch,
        start_offset=asked.start_offset,
        delivery_complete_count=asked.delivery_complete_count,
        batches=tuple(
            StateBatch(
                first_offset=batch.first_offset,
                last_offset=batch.last_offset,
                delivery_state=batch.delivery_state,
                delivery_count=batch.delivery_count,
            )
            for batch in asked.state_batches
        ),
    )


def _refused(partition_index: int, code: ErrorCode, text: str) -> InitializeStatePartitionResult:
    return InitializeStatePartitionResult(partition=partition_index, error_code=code, error_message=text)
