"""The services for a controller's handlers.

Here: `ControllerServices`, and the response to another voter.
Not here: any implementation. Handlers of a broker that the controller serves too use its `NodeServices`' names.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, cast
from uuid import UUID

from busway_bus.controller.controller import Controller
from busway_bus.handlers.common.context import CloseConnection, Peer, RequestContext
from busway_bus.handlers.common.response_room import LargeAnswers
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.counters import RequestCounters
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.metadata.image import ClusterImage
from busway_bus.quorum.driver import QuorumDriver
from busway_bus.quorum.metadata_log import MetadataLog
from busway_bus.quorum.ready import QuorumRequest, QuorumResponse
from busway_bus.scheduling.fair_share import FairScheduler
from busway_protocol.errors import KafkaError
from busway_protocol.machine import Machine


class Liveness(Protocol):
    """Notices brokers whose processes are gone."""

    def deciding(self, peer: Peer, node_id: int, epoch: int) -> AbstractContextManager[None]:
        """Count a broker as connected while its heartbeat is decided."""

    def received(self, peer: Peer, node_id: int, epoch: int) -> None:
        """Note the connection of a broker's heartbeat."""


@dataclass(slots=True, kw_only=True)
class ControllerServices:
    """The parts of a controller that its handlers call.

    Attributes:
        controller: decides while this node leads.
        listener: name of the voters' listener at `addresses`.
        addresses: host and port by voter.
        controller_advertised: addresses of this node's listeners for the controller's clients.
    """

    config: BrokerConfig
    machine: Machine
    cluster_id: str
    directory_id: UUID
    metadata: MetadataLog
    controller: Controller
    liveness: Liveness
    quorum: QuorumDriver
    scheduler: FairScheduler
    listener: str
    addresses: Mapping[int, tuple[str, int]]
    controller_advertised: Mapping[str, Endpoint]
    large_answers: LargeAnswers = field(default_factory=LargeAnswers)
    requests: RequestCounters = field(default_factory=RequestCounters)

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    def check_online(self, topic_id: UUID) -> None:
        """Do nothing: a controller has no partitions."""


def services(context: RequestContext) -> ControllerServices:
    return cast("ControllerServices", context.node)


async def answered(request: QuorumRequest, context: RequestContext) -> QuorumResponse:
    """Return the quorum's reply once it is on disk.

    CloseConnection: none follows, as the controller stops or its disk fails.
    """
    try:
        return await services(context).quorum.answer(request)
    except (KafkaError, OSError) as problem:
        raise CloseConnection(f"no answer of the quorum: {problem}") from None
