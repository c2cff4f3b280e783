"""ReadShareGroupState (key 84, version 0): read states of share partitions, for partition leaders.

Behaviour: for brokers. The leader epoch is stored, which fences earlier leaders (FENCED_LEADER_EPOCH).
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.common.share_states import each
from busway_bus.kernel.share_state import SharePartitionKey
from busway_bus.metadata.features import SHARE_VERSION
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.share_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStatePartition,
    ReadStatePartitionResult,
    ReadStateResult,
    StateBatch,
)

API = ApiKey.READ_SHARE_GROUP_STATE
VERSIONS = (0, 0)
FEATURE = SHARE_VERSION
NEEDS = (Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),)


async def handle(request: ReadShareGroupStateRequest, context: RequestContext) -> ReadShareGroupStateResponse:
    states = context.node.share_states

    async def ask(key: SharePartitionKey, asked: ReadStatePartition) -> ReadStatePartitionResult:
        state = await states.read(key, leader_epoch=asked.leader_epoch)
        return ReadStatePartitionResult(
            partition=key.partition,
            error_code=ErrorCode.NONE,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[
                StateBatch(
                    first_offset=batch.first_offset,
                    last_offset=batch.last_offset,
                    delivery_state=batch.delivery_state,
                    delivery_count=batch.delivery_count,
                )
                for batch in state.batches
            ],
        )

    results = await each(request.group_id, request.topics, context, ask, _refused)
    return ReadShareGroupStateResponse(
        results=[ReadStateResult(topic_id=topic_id, partitions=rows) for topic_id, rows in results]
    )


def _refused(partition_index: int, code: ErrorCode, text: str) -> ReadStatePartitionResult:
    return ReadStatePartitionResult(
        partition=partition_index, error_code=code, error_message=text, state_epoch=0, start_offset=0, state_batches=[]
    )
