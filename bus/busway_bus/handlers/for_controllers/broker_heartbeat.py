"""BrokerHeartbeat (key 63, versions 0-2): a broker is alive, and requests a state (KIP-631).

Versions: 1 has failed directories (KIP-858), 2 cordoned ones (KIP-1066).
Behaviour: a broker that has caught up is unfenced, and leads again what has no leader. One that wants to stop hands over
its leaderships; `should_shut_down` follows once every active broker knows the new leaders. Without heartbeats for
`broker.session.timeout.ms` it is fenced, and at once if the connection ends and the broker's process is gone
(`nodes.fencing`). An earlier epoch is STALE_BROKER_EPOCH. Only the active controller decides; others are NOT_CONTROLLER.
"""

from busway_bus.controller.brokers import BrokerHeartbeat
from busway_bus.controller.heartbeats import BrokerState
from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.for_controllers.services import services
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.brokers import BrokerHeartbeatRequest, BrokerHeartbeatResponse

API = ApiKey.BROKER_HEARTBEAT
VERSIONS = (0, 2)
NEEDS = (Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),)


async def handle(request: BrokerHeartbeatRequest, context: RequestContext) -> BrokerHeartbeatResponse:
    cordoned = request.cordoned_log_dirs
    command = BrokerHeartbeat(
        node_id=request.broker_id,
        epoch=request.broker_epoch,
        metadata_offset=request.current_metadata_offset,
        want_fence=request.want_fence,
        want_shut_down=request.want_shut_down,
        offline_directories=tuple(request.offline_log_dirs),
        cordoned_directories=None if cordoned is None else tuple(cordoned),
    )
    liveness, heartbeat = services(context).liveness, (context.peer, request.broker_id, request.broker_epoch)
    try:
        with liveness.deciding(*heartbeat):
            reply = await context.node.controller.request(command, context.for_controller)
    except KafkaError as problem:
        return BrokerHeartbeatResponse(error_code=problem.code, should_shut_down=False)
    liveness.received(*heartbeat)
    return BrokerHeartbeatResponse(
        error_code=ErrorCode.NONE,
        is_caught_up=reply.caught_up,
        is_fenced=reply.state.fenced,
        should_shut_down=reply.state is BrokerState.SHUTDOWN_NOW,
    )
