"""BrokerRegistration (key 62, versions 0-4): a started broker joins the cluster (KIP-631).

Versions: 1 has brokers of ZooKeeper, which are refused, 2 directories (KIP-858), 3 the epoch before a clean stop
(KIP-966), 4 features from level 0 on.
Behaviour: the response has the broker's epoch; it is fenced until a heartbeat shows that it has caught up. A broker of
another cluster is INCONSISTENT_CLUSTER_ID, an id whose broker is alive DUPLICATE_BROKER_REGISTRATION, an unsupported
finalized feature UNSUPPORTED_VERSION, a directory of another broker INVALID_REGISTRATION. The same process keeps its
epoch. Only the active controller decides; others are NOT_CONTROLLER.
"""

import logging

from busway_bus.controller.brokers import NO_EPOCH, RegisterBroker
from busway_bus.handlers.common.context import RequestContext
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.brokers import BrokerRegistrationRequest, BrokerRegistrationResponse

logger = logging.getLogger("busway.controller")

API = ApiKey.BROKER_REGISTRATION
VERSIONS = (0, 4)
NEEDS = (Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),)


async def handle(request: BrokerRegistrationRequest, context: RequestContext) -> BrokerRegistrationResponse:
    command = RegisterBroker(
        node_id=request.broker_id,
        incarnation=request.incarnation_id,
        endpoints=tuple(
            Endpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ),
        rack=request.rack,
        directories=tuple(request.log_dirs),
        features=tuple(
            (feature.name, feature.min_supported_version, feature.max_supported_version) for feature in request.features
        ),
        joins=True,
        cluster_id=request.cluster_id,
        previous_epoch=NO_EPOCH if request.previous_broker_epoch < 0 else request.previous_broker_epoch,
        is_zk=request.is_migrating_zk_broker,
    )
    try:
        epoch = await context.node.controller.request(command, context.for_controller)
    except KafkaError as problem:
        if problem.code is not ErrorCode.NOT_CONTROLLER:
            logger.warning("broker %d cannot register: %s", request.broker_id, problem)
        return BrokerRegistrationResponse(error_code=problem.code)
    logger.info("broker %d is registered with epoch %d", request.broker_id, epoch)
    return BrokerRegistrationResponse(error_code=ErrorCode.NONE, broker_epoch=epoch)
