"""The kinds of endpoints that a client of DescribeCluster may want (KIP-919).

Here: their numbers, and the refusal of a misdirected request.
Not here: the endpoints (`describe_cluster`, `for_controllers.describe_cluster`).
"""

from typing import Final

from busway_protocol.errors import ErrorCode
from busway_protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse

BROKERS: Final = 1
CONTROLLERS: Final = 2
_CODES_SINCE: Final = 1
"""Version of DescribeCluster with error codes of their own."""
_NAMES: Final = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}


def other_type(
    request: DescribeClusterRequest, served: int, *, api_version: int, has_controllers: bool = True
) -> DescribeClusterResponse:
    """Refuse a request for the other kind, as Kafka's `AuthHelper`.

    Args:
        has_controllers: whether the node has a listener for controllers.
    """
    wanted = _NAMES.get(request.endpoint_type)
    code = ErrorCode.INVALID_REQUEST
    if wanted is None:
        text = f"Unsupported endpoint type {request.endpoint_type}"
    else:
        text = (
            f"The request was sent to an endpoint of type {_NAMES[served]}, but we wanted an endpoint of type {wanted}"
        )
        if not has_controllers:
            text += "; this broker has no listener for controllers, use --bootstrap-server"
    if api_version >= _CODES_SINCE:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE if wanted is None else ErrorCode.MISMATCHED_ENDPOINT_TYPE
    return DescribeClusterResponse(error_code=code, error_message=text, cluster_id="", brokers=[])
