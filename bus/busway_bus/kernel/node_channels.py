"""The interfaces to the other nodes of the cluster.

Here: requests to the active controller, and to a broker by its id.
Not here: connections and retries, which implement them (`nodes`).
"""

from collections.abc import Callable
from typing import Any, Protocol


class ControllerChannel(Protocol):
    """Sends a broker's own requests to the active controller, which may be this node."""

    async def send(self, request: Any, *, sending: Callable[[], None] = lambda: None) -> Any:
        """Return the controller's response; look the controller up again where it moved.

        Args:
            request: a message of the controller's listener: BrokerRegistration, BrokerHeartbeat, AlterPartition,
                AllocateProducerIds, Envelope.
            sending: called each time the request is sent: an earlier attempt may have been carried out.

        Raises:
            KafkaError: REQUEST_TIMED_OUT, no active controller answered in time; UNSUPPORTED_VERSION.
        """


class BrokerChannels(Protocol):
    """Sends requests to other brokers, one connection for each broker and purpose."""

    async def send(self, node_id: int, request: Any, *, purpose: str = "", timeout_ms: int) -> Any:
        """Return a broker's response.

        Args:
            purpose: requests of one purpose share a connection and are answered in order.

        Raises:
            KafkaError: BROKER_NOT_AVAILABLE, it is not in the image, fenced, or refuses connections; NETWORK_EXCEPTION,
                the connection ended or timed out, so that the outcome is unknown.
        """
