"""What a controller's handlers may use of their node.

What lives here: `ControllerServices`, and how a request of another voter is answered. What does not: how any of it works.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from uuid import UUID

from busway_bus.handlers.common.context import CloseConnection, RequestContext
from busway_bus.kernel.config import BrokerConfig
from busway_bus.metadata.image import ClusterImage
from busway_bus.quorum.driver import QuorumDriver
from busway_bus.quorum.metadata_log import MetadataLog
from busway_bus.quorum.ready import QuorumRequest, QuorumResponse
from busway_bus.scheduling.fair_share import Turns
from busway_protocol.errors import KafkaError
from busway_protocol.machine import Machine


@dataclass(slots=True, kw_only=True)
class ControllerServices:
    """The parts of a controller that its handlers call.

    Attributes:
        listener: the name under which voters are reached at `addresses`.
        addresses: host and port by voter.
    """

    config: BrokerConfig
    machine: Machine
    cluster_id: str
    directory_id: UUID
    metadata: MetadataLog
    quorum: QuorumDriver
    turns: Turns
    listener: str
    addresses: Mapping[int, tuple[str, int]]

    @property
    def image(self) -> ClusterImage:
        """The current picture of the cluster."""
        return self.metadata.image


def services(context: RequestContext) -> ControllerServices:
    """The parts of the controller that is asked."""
    return cast("ControllerServices", context.node)


async def answered(request: QuorumRequest, context: RequestContext) -> QuorumResponse:
    """The quorum's answer; where there will be none, as the controller stops or its disk fails, the connection ends.

    Raises:
        CloseConnection: see above.
    """
    try:
        return await services(context).quorum.answer(request)
    except (KafkaError, OSError) as problem:
        raise CloseConnection(f"no answer of the quorum: {problem}") from None
