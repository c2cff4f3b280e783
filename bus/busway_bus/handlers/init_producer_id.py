"""InitProducerId (key 22, versions 0-5): an identity for an idempotent producer (KIP-98).

Versions: 2 is flexible, 3 brings back an id and epoch to be raised (KIP-360), 5 may answer abortable errors (KIP-890).
Behaviour: a new id each time; with an id and epoch, the next epoch of it, or a new id when epochs are used up.
*Not supported*: transactional ids, which are refused with INVALID_REQUEST.
"""

import logging

from busway_bus.controller.producer_ids import next_block
from busway_bus.handlers.context import NodeServices, RequestContext
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse

log = logging.getLogger("busway.producers")

API = ApiKey.INIT_PRODUCER_ID
VERSIONS = (0, 5)
EPOCH_MAX = 32_766


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Give out the next id."""
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    if request.producer_id >= 0 and 0 <= request.producer_epoch < EPOCH_MAX:
        return InitProducerIdResponse(
            error_code=ErrorCode.NONE,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch + 1,
        )
    try:
        producer_id = await _next(context.node)
    except KafkaError as problem:
        log.error("no producer ids can be given out: %s", problem)
        # As Kafka's ProducerIdManager: the one answer on which every client asks again.
        return InitProducerIdResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_id=-1, producer_epoch=-1
        )
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)


async def _next(node: NodeServices) -> int:
    while not node.producer_ids:
        # Several may come here at once; each reserves a block, and the blocks that lose the race are never given out.
        block = await node.metadata.run(lambda image: next_block(image, node.node_id))
        if not node.producer_ids:
            node.producer_ids = block
    first = node.producer_ids[0]
    node.producer_ids = node.producer_ids[1:]
    return first
