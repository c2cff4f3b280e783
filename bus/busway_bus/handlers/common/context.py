"""A request's context, and the services for handlers.

Here: `NodeServices`, `RequestContext`, `Peer` (the client's state), `CloseConnection`.
Not here: any implementation.
"""

import asyncio
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from uuid import UUID

from busway_bus.controller.controller import Controller, ControllerRequestContext
from busway_bus.coordinator.group_coordinator import GroupCoordinator
from busway_bus.coordinator.producer_ids import ProducerIds
from busway_bus.coordinator.share_group_coordinator import ShareGroups
from busway_bus.coordinator.share_state_coordinator import ShareCoordinator
from busway_bus.coordinator.transaction_coordinator import TransactionCoordinator
from busway_bus.handlers.common.metadata_responses import MetadataAnswers
from busway_bus.handlers.common.response_room import LargeAnswers
from busway_bus.handlers.common.topic_auto_creation import TopicAutoCreator
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.counters import RequestCounters
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.kernel.principal import ANONYMOUS, Principal
from busway_bus.kernel.transactions import MarkerWriter
from busway_bus.metadata.image import ClusterImage
from busway_bus.quorum.metadata_images import Published
from busway_bus.quorum.metadata_log import MetadataLog
from busway_bus.replication.fetch_sessions import FetchSessions
from busway_bus.replication.manager import ReplicaManager
from busway_bus.scheduling.fair_share import FairScheduler
from busway_bus.share.manager import SharePartitions
from busway_protocol.compile import Chunk
from busway_protocol.machine import Machine

R = TypeVar("R")


class CloseConnection(Exception):
    """The connection must end: the only response that this client understands.

    The text is for the logger.
    """


@dataclass(slots=True, kw_only=True)
class NodeServices:
    """The parts of the node that handlers call.

    Attributes:
        volume: total and free bytes of the data directory's volume; blocks on the disk.
        controller_advertised: addresses of the controller's listeners, by name.
        partition_ends: of partitions that other brokers lead; None where there are none.
        images: the metadata that this node's partitions have followed.
        forwarding: to the controller of a cluster; None where this node is the only one.
    """

    config: BrokerConfig
    machine: Machine
    volume: Callable[[], tuple[int, int]]
    cluster_id: str
    directory_id: UUID
    controller_advertised: Mapping[str, Endpoint]
    metadata: MetadataLog
    images: Published
    controller: Controller
    replicas: ReplicaManager
    sessions: FetchSessions
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    share_states: ShareCoordinator
    share_groups: ShareGroups
    markers: MarkerWriter
    producer_ids: ProducerIds
    shares: SharePartitions
    creations: TopicAutoCreator
    scheduler: FairScheduler
    metadata_answers: MetadataAnswers
    partition_ends: "PartitionEnds | None" = None
    forwarding: "Forwarding | None" = None
    large_answers: LargeAnswers = field(default_factory=LargeAnswers)
    requests: RequestCounters = field(default_factory=RequestCounters)

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def image(self) -> ClusterImage:
        return self.images.image

    def check_online(self, topic_id: UUID) -> None:
        """See `LocalPartitions.check_online`."""
        self.replicas.local.check_online(topic_id)


class PartitionEnds(Protocol):
    """The high watermarks of partitions, wherever they are led."""

    async def end(self, topic: str, partition: int) -> int:
        """Return a partition's high watermark; KafkaError: it is not known now."""


class Forwarding(Protocol):
    """Passes clients' requests to the active controller."""

    async def forward(self, frame: bytes, context: "RequestContext") -> tuple[bytes, int]:
        """Return the controller's response to a request, header included, and how often the request was sent.

        Raises:
            KafkaError: REQUEST_TIMED_OUT, no controller answered; UNKNOWN_SERVER_ERROR.
            CloseConnection: the controller does not support the request's version.
        """


class PeerGone(Exception):
    """The client is gone, or the node stops: no response is sent."""


class Wait(Protocol):
    """A wait that is no future: a long poll."""

    def end(self, problem: Exception) -> None:
        """End the wait with this error, if it is not over."""


class Peer:
    """Whether the client of a connection still waits for responses.

    A write continues without the client, as in Kafka: a disconnect never cancels a request. A pure wait, such as a long
    poll or a member's in a rebalance, is registered, and ends with PeerGone.

    Attributes:
        polls: waits that end when the client is gone; the caller removes a finished one.
        closed_by_client: the client ended the connection.
        was_reset: it ended with a reset.
        members: (group id, member id) of the last requests.
        when_closed: called once with `closed_by_client` when the connection has ended.
    """

    __slots__ = ("_waits", "closed_by_client", "gone", "members", "polls", "was_reset", "when_closed")

    def __init__(self) -> None:
        self.gone = False
        self.closed_by_client = False
        self.was_reset = False
        self.polls: set[Wait] = set()
        self.members: set[tuple[str, str]] = set()
        self.when_closed: Callable[[bool], None] | None = None
        self._waits: set[asyncio.Future[Any]] = set()

    def waits(self, future: "asyncio.Future[Any]") -> None:
        """End this future with PeerGone once the client is gone."""
        if future.done():
            return
        if self.gone:
            future.set_exception(PeerGone())
            return
        self._waits.add(future)
        future.add_done_callback(self._waits.discard)

    def closed(self, *, by_client: bool, was_reset: bool = False) -> None:
        """Report the end of the connection; `left` follows."""
        self.closed_by_client, self.was_reset = by_client, was_reset
        if self.when_closed is not None:
            self.when_closed(by_client)

    def left(self) -> None:
        self.gone = True
        for poll in tuple(self.polls):
            poll.end(PeerGone())
        for future in tuple(self._waits):
            if not future.done():
                future.set_exception(PeerGone())
                future.exception()  # retrieved here, as the response may not await it yet


@dataclass(frozen=True, slots=True)
class Large:
    """A response that is encoded off the event loop.

    Attributes:
        keep: called with its bytes, to cache them.
        over: called once it is encoded, or never will be.
    """

    response: Any
    keep: Callable[[list[Chunk]], None] | None = None
    over: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Encoded:
    body: list[Chunk]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """Context of one request.

    `advertised`: this node's address for clients of the request's listener.
    """

    api_version: int
    client_id: str | None
    client_host: str
    advertised: Endpoint
    peer: Peer
    node: NodeServices
    principal: Principal = ANONYMOUS

    @property
    def listener(self) -> str:
        return self.advertised.name

    @property
    def on_controller_listener(self) -> bool:
        """Whether the client addresses this node's controller."""
        return self.listener in self.node.controller_advertised

    @property
    def on_cluster_controller(self) -> bool:
        """Whether this is a controller of a cluster: `node` is a `ControllerServices`."""
        return not isinstance(self.node, NodeServices)

    @property
    def for_controller(self) -> ControllerRequestContext:
        return ControllerRequestContext(principal=self.principal)

    async def in_slices(
        self, steps: Generator[None, None, Any], keep: Callable[[list[Chunk]], None] | None = None
    ) -> Large:
        """Build a large response in turns with other hosts.

        `keep` is called with its bytes. PeerGone: the client is gone when its turn begins.
        """
        answers = self.node.large_answers
        await answers.begin(self.client_host)
        try:
            if self.peer.gone:
                raise PeerGone
            return Large(await self.node.scheduler.run(self.client_host, steps), keep, answers.end)
        except BaseException:
            answers.end()
            raise


def finished(steps: Generator[None, None, R]) -> R:
    while True:
        try:
            next(steps)
        except StopIteration as over:
            result: R = over.value
            return result


Request = Any
