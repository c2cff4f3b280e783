"""AddOffsetsToTxn (key 25, versions 0-4): add a group's offsets to a transaction (KIP-98).

Versions: 2 returns PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588), 3 is flexible, 4 may return
TRANSACTION_ABORTABLE (KIP-890).
Behaviour: adds the group's partition of the offsets topic; see AddPartitionsToTxn.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.kernel.topics import OFFSETS_TOPIC
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

API = ApiKey.ADD_OFFSETS_TO_TXN
VERSIONS = (0, 4)
NEEDS = (Access(Operation.WRITE, Resource.TRANSACTIONAL_ID), Access(Operation.READ, Resource.GROUP))
FENCED_SINCE = 2


async def handle(request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    node, identity = context.node, (request.producer_id, request.producer_epoch)
    try:
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        await node.groups.ensure()
        partition = (OFFSETS_TOPIC, node.groups.runtime.partition_of(request.group_id))
        await node.transactions.add(
            request.transactional_id, identity, (partition,), client_version=0, host=context.client_host
        )
    except KafkaError as problem:
        fenced = problem.code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_SINCE
        code = ErrorCode.INVALID_PRODUCER_EPOCH if fenced else problem.code
        return AddOffsetsToTxnResponse(error_code=code)
    return AddOffsetsToTxnResponse(error_code=ErrorCode.NONE)
