"""DescribeCluster (key 60, versions 0-2): the brokers of the cluster, or its controllers (KIP-700, KIP-919).

Versions: 1 can request controllers, 2 also fenced brokers.
Behaviour: the registered brokers, with their addresses for the client's listener; on a controller's listener the
controller, with its address there. A request for the others is MISMATCHED_ENDPOINT_TYPE.
"""

from busway_bus.handlers.common.authorized import CLUSTER_OPERATIONS
from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.common.endpoint_types import BROKERS, CONTROLLERS, other_type
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

API = ApiKey.DESCRIBE_CLUSTER
VERSIONS = (0, 2)
NEEDS = ()


def handle(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    node = context.node
    served = CONTROLLERS if context.on_controller_listener else BROKERS
    if request.endpoint_type != served:
        return other_type(
            request, served, api_version=context.api_version, has_controllers=bool(node.controller_advertised)
        )
    answer = DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        endpoint_type=served,
        cluster_id=node.cluster_id,
        controller_id=node.controller.leader_id,
        brokers=_brokers(request, context) if served == BROKERS else [_controller(context)],
    )
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = CLUSTER_OPERATIONS
    return answer


def _brokers(request: DescribeClusterRequest, context: RequestContext) -> list[DescribeClusterBroker]:
    image = context.node.image
    return [
        DescribeClusterBroker(
            broker_id=broker.node_id,
            host=address.host,
            port=address.port,
            rack=broker.rack,
            is_fenced=broker.fenced,
        )
        for broker in (image.brokers.values() if request.include_fenced_brokers else image.usable_brokers())
        if (address := broker.addresses.get(context.listener)) is not None
    ]


def _controller(context: RequestContext) -> DescribeClusterBroker:
    here = context.advertised
    return DescribeClusterBroker(broker_id=context.node.controller.leader_id, host=here.host, port=here.port)
