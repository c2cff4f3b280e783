"""EndTxn (key 26, versions 0-5): commit or abort a transaction (KIP-98).

Versions: 2 returns PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588), 3 is flexible, 4 may return
TRANSACTION_ABORTABLE, 5 raises the epoch and returns the new identity (KIP-890).
Behaviour: responds once the decision is durable; the markers follow, also after a crash. With version 5 a transaction
without partitions can be aborted.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.transactions import EndTxnRequest, EndTxnResponse

API = ApiKey.END_TXN
VERSIONS = (0, 5)
NEEDS = (Access(Operation.WRITE, Resource.TRANSACTIONAL_ID),)
FENCED_SINCE = 2
BUMPED_SINCE = 5


async def handle(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    identity = (request.producer_id, request.producer_epoch)
    try:
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        producer_id, epoch = await context.node.transactions.end(
            request.transactional_id,
            identity,
            commit=request.committed,
            client_version=2 if context.api_version >= BUMPED_SINCE else 0,
        )
    except KafkaError as problem:
        fenced = problem.code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_SINCE
        return EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH if fenced else problem.code)
    return EndTxnResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=epoch)
