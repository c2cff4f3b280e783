"""AllocateProducerIds (key 67, version 0): a broker requests a block of producer ids (KIP-730).

Behaviour: responds once the block is committed: no id is given twice. The broker must be registered with the request's
epoch, or STALE_BROKER_EPOCH. Only the active controller answers; others return NOT_CONTROLLER.
"""

from busway_bus.controller.producer_ids import AllocateProducerIds
from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.forwarding import AllocateProducerIdsRequest, AllocateProducerIdsResponse

API = ApiKey.ALLOCATE_PRODUCER_IDS
VERSIONS = (0, 0)
NEEDS = (Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),)


async def handle(request: AllocateProducerIdsRequest, context: RequestContext) -> AllocateProducerIdsResponse:
    command = AllocateProducerIds(broker_id=request.broker_id, broker_epoch=request.broker_epoch)
    try:
        block = await context.node.controller.request(command, context.for_controller)
    except KafkaError as problem:
        return AllocateProducerIdsResponse(error_code=problem.code)
    return AllocateProducerIdsResponse(
        error_code=ErrorCode.NONE, producer_id_start=block.start, producer_id_len=len(block)
    )
