"""InitProducerId (key 22, versions 0-5): assign an identity to a producer (KIP-98).

Versions: 2 is flexible, 3 sends an id and epoch to be raised (KIP-360), 4 returns PRODUCER_FENCED instead of
INVALID_PRODUCER_EPOCH (KIP-588), 5 may return abortable errors (KIP-890).
Behaviour: without a transactional id always a new id, even if the request has one: it may be another producer's, which
the next epoch would fence. With a transactional id its producer id in the next epoch, which fences the earlier
producer; an open transaction is aborted first. Memory for transactional ids is bounded, as is a host's share of it
(POLICY_VIOLATION); Kafka has no bound.
*Not supported*: two-phase commit (KIP-939), which Kafka 4.3 does not serve either.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse

API = ApiKey.INIT_PRODUCER_ID
VERSIONS = (0, 5)
NEEDS = (Access(Operation.WRITE, Resource.TRANSACTIONAL_ID), Access(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER))
NONE = -1
FENCED_SINCE = 4


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    try:
        producer_id, epoch = await _identity(request, context)
    except KafkaError as problem:
        code = problem.code
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return InitProducerIdResponse(error_code=code, producer_id=NONE, producer_epoch=NONE)
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=epoch)


async def _identity(request: InitProducerIdRequest, context: RequestContext) -> tuple[int, int]:
    node, expected = context.node, (request.producer_id, request.producer_epoch)
    if (expected[0] == NONE) != (expected[1] == NONE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "producer id and epoch go together")
    if request.transactional_id is None:
        return await node.producer_ids.take(), 0
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    return await node.transactions.begin(
        request.transactional_id,
        request.transaction_timeout_ms,
        None if expected[0] == NONE else expected,
        host=context.client_host,
    )
