"""DescribeCluster (key 60, versions 0-2) of a controller: the cluster's controllers (KIP-700, KIP-919).

Versions: 1 can request controllers, 2 also fenced brokers.
Behaviour: the voters and their leader. A request for brokers is MISMATCHED_ENDPOINT_TYPE, in version 0 INVALID_REQUEST.
"""

from busway_bus.handlers.common.authorized import CLUSTER_OPERATIONS
from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.common.endpoint_types import CONTROLLERS, other_type
from busway_bus.handlers.for_controllers.services import services
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

API = ApiKey.DESCRIBE_CLUSTER
VERSIONS = (0, 2)
NEEDS = ()


def handle(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    node = services(context)
    if request.endpoint_type != CONTROLLERS:
        return other_type(request, CONTROLLERS, api_version=context.api_version)
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
