"""InitProducerId (key 22, versions 0-5): an identity for an idempotent producer (KIP-98).

Versions: 2 is flexible, 3 brings back an id and epoch to be raised (KIP-360), 5 may answer abortable errors (KIP-890).
Behaviour: a new id each time, also for who names one: it need not be his, and the next epoch of it would fence whose it is.
*Not supported*: transactional ids, refused with the error on which every client gives up at once (see FindCoordinator).
"""

import logging

from busway_bus.controller.producer_ids import AllocateProducerIds
from busway_bus.handlers.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse

log = logging.getLogger("busway.producers")

API = ApiKey.INIT_PRODUCER_ID
VERSIONS = (0, 5)
NEEDS = (Access(Operation.WRITE, Resource.TRANSACTIONAL_ID), Access(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER))
NONE = -1


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Give out the next id."""
    if request.transactional_id is not None:
        code = (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if request.transactional_id else ErrorCode.INVALID_REQUEST
        )
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    try:
        producer_id = await _next(context)
    except KafkaError as problem:
        log.error("no producer ids can be given out: %s", problem)
        # As Kafka's ProducerIdManager: the one answer on which every client asks again.
        return InitProducerIdResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_id=-1, producer_epoch=-1
        )
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)


async def _next(context: RequestContext) -> int:
    node = context.node
    while not node.producer_ids:
        # Several may come here at once; each reserves a block, and the blocks that lose the race are never given out.
        broker = node.image.brokers[node.node_id]
        command = AllocateProducerIds(broker_id=node.node_id, broker_epoch=broker.epoch)
        block = await node.controller.request(command, context.for_controller)
        if not node.producer_ids:
            node.producer_ids = block
    first = node.producer_ids[0]
    node.producer_ids = node.producer_ids[1:]
    return first
