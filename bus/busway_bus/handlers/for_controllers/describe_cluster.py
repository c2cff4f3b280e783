"""DescribeCluster (key 60, versions 0-2) of a controller: the controllers of the cluster (KIP-700, KIP-919).

Versions: 1 can ask for controllers, 2 for fenced brokers too.
Behaviour: the voters, and who leads them. Whoever asks for brokers is told that this is no broker (MISMATCHED_ENDPOINT_TYPE), as is everybody in
version 0.
*Not supported*: nothing is left out.
"""

from busway_bus.handlers.common.authorized import CLUSTER_OPERATIONS
from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.for_controllers.services import services
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

API = ApiKey.DESCRIBE_CLUSTER
VERSIONS = (0, 2)
NEEDS = ()
CONTROLLERS = 2


def handle(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Name the controllers."""
    node = services(context)
    if request.endpoint_type != CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER",
            cluster_id=node.cluster_id,
            brokers=[],
        )
    answer = DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        endpoint_type=CONTROLLERS,
        cluster_id=node.cluster_id,
        controller_id=node.quorum.leader_id,
        brokers=[
            DescribeClusterBroker(broker_id=voter, host=host, port=port)
            for voter, (host, port) in node.addresses.items()
        ],
    )
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = CLUSTER_OPERATIONS
    return answer
