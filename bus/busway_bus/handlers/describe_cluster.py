"""DescribeCluster (key 60, versions 0-2): the brokers of the cluster (KIP-700).

Versions: 1 can request controllers (KIP-919), 2 also fenced brokers.
Behaviour: the registered brokers, with their addresses for the client's listener.
*Not supported*: asking for the controllers' endpoints; one node opens none.
"""

from busway_bus.handlers.common.authorized import CLUSTER_OPERATIONS
from busway_bus.handlers.common.context import RequestContext
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

API = ApiKey.DESCRIBE_CLUSTER
VERSIONS = (0, 2)
NEEDS = ()
BROKERS = 1


def handle(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    node = context.node
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER; this broker has no "
            "listener for controllers, use --bootstrap-server",
            cluster_id=node.cluster_id,
            brokers=[],
        )
    image = node.image
    shown = image.brokers.values() if request.include_fenced_brokers else image.usable_brokers()
    answer = DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=node.cluster_id,
        controller_id=node.controller.leader_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id,
                host=address.host,
                port=address.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
            for broker in shown
            if (address := broker.addresses.get(context.listener)) is not None
        ],
    )
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = CLUSTER_OPERATIONS
    return answer
