"""UnregisterBroker (key 64, version 0): remove a stopped broker from the cluster (KIP-631).

Behaviour: responds once that is durable. Its partitions keep it among their replicas, out of sync, as in Kafka. A broker
that registers again is a member again. An unknown id is BROKER_ID_NOT_REGISTERED; the only node of a cluster cannot leave
it: INVALID_REQUEST.
"""

from busway_bus.controller.lost_brokers import UnregisterBroker
from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.brokers import UnregisterBrokerRequest, UnregisterBrokerResponse

API = ApiKey.UNREGISTER_BROKER
VERSIONS = (0, 0)
NEEDS = (Access(Operation.ALTER, Resource.CLUSTER),)


async def handle(request: UnregisterBrokerRequest, context: RequestContext) -> UnregisterBrokerResponse:
    command = UnregisterBroker(node_id=request.broker_id)
    try:
        await context.node.controller.request(command, context.for_controller)
    except KafkaError as problem:
        return UnregisterBrokerResponse(error_code=problem.code, error_message=problem.message)
    return UnregisterBrokerResponse(error_code=ErrorCode.NONE, error_message=None)
