"""Who asks, in which version, and what a handler may use.

What lives here: `NodeServices`, all that handlers see of the node, `RequestContext`, `Peer`, whether the client is still there, and
`CloseConnection`, the last word. What does not: how any of it works.
"""

import asyncio
from collections.abc import Callable, Generator
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
from busway_bus.kernel.config import BrokerConfig, Endpoint
from busway_bus.kernel.principal import ANONYMOUS, Principal
from busway_bus.kernel.transactions import MarkerWriter
from busway_bus.metadata.image import ClusterImage
from busway_bus.quorum.metadata_log import MetadataLog
from busway_bus.replication.fetch_sessions import FetchSessions
from busway_bus.replication.manager import ReplicaManager
from busway_bus.scheduling.fair_share import Turns
from busway_bus.share.manager import SharePartitions
from busway_protocol.compile import Chunk
from busway_protocol.machine import Machine

R = TypeVar("R")


class CloseConnection(Exception):
    """The connection has to end, as it is the only answer that this client understands; the text is for the log."""


@dataclass(slots=True, kw_only=True)
class NodeServices:
    """The parts of the node that handlers call.

    Attributes:
        machine: the clocks, identifiers and chance of this node.
        volume: how many bytes the volume of the data directory has, and how many of them are free; waits for the disk.
    """

    config: BrokerConfig
    machine: Machine
    volume: Callable[[], tuple[int, int]]
    cluster_id: str
    directory_id: UUID
    metadata: MetadataLog
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
    turns: Turns
    metadata_answers: MetadataAnswers
    large_answers: LargeAnswers = field(default_factory=LargeAnswers)

    @property
    def node_id(self) -> int:
        """This node's id."""
        return self.config.node_id

    @property
    def image(self) -> ClusterImage:
        """The current picture of the cluster."""
        return self.metadata.image


class PeerGone(Exception):
    """The client that waited for an answer is gone, or will get none any more: the node stops."""


class Wait(Protocol):
    """A wait that is no future: a long poll."""

    def end(self, problem: Exception) -> None:
        """Wait no more, because of this; nothing happens where it is over."""


class Peer:
    """Whether the client of a connection still waits for answers.

    What has begun to write goes on without it, as in Kafka: a request is never cancelled by who sent it. What only waits, a long
    poll or a member in a rebalance, names what it waits for, and is let go with PeerGone.

    Attributes:
        polls: are ended when the client is gone; who adds one takes it out when it is over.
        closed_by_client: whether the connection has ended, and the client has closed it.
        members: group id and member id of those whose requests the connection carried last.
        when_closed: called once when the connection has ended, with whether the client has closed it.
    """

    __slots__ = ("_waits", "closed_by_client", "gone", "members", "polls", "when_closed")

    def __init__(self) -> None:
        self.gone = False
        self.closed_by_client = False
        self.polls: set[Wait] = set()
        self.members: set[tuple[str, str]] = set()
        self.when_closed: Callable[[bool], None] | None = None
        self._waits: set[asyncio.Future[Any]] = set()

    def waits(self, future: "asyncio.Future[Any]") -> None:
        """End the wait for this future with PeerGone when the client is gone, at once when it is already."""
        if future.done():
            return
        if self.gone:
            future.set_exception(PeerGone())
            return
        self._waits.add(future)
        future.add_done_callback(self._waits.discard)

    def closed(self, *, by_client: bool) -> None:
        """The connection has ended, by the client or the end of its process, or by the broker; `left` follows."""
        self.closed_by_client = by_client
        if self.when_closed is not None:
            self.when_closed(by_client)

    def left(self) -> None:
        """The client is gone: end what only waits for it."""
        self.gone = True
        for poll in tuple(self.polls):
            poll.end(PeerGone())
        for future in tuple(self._waits):
            if not future.done():
                future.set_exception(PeerGone())
                future.exception()  # nobody may be there to take it: the answer may not have begun to wait


@dataclass(frozen=True, slots=True)
class Large:
    """An answer that is so large that it is put into bytes beside the event loop.

    Attributes:
        keep: told of those bytes, for the next who asks the same.
        over: called once when it is in bytes, or will never be.
    """

    response: Any
    keep: Callable[[list[Chunk]], None] | None = None
    over: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Encoded:
    """An answer that is in bytes already, all but its header."""

    body: list[Chunk]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """One request's circumstances.

    Attributes:
        advertised: where clients of the listener that it came by find this node.
        peer: whether the client is still there.
        principal: who asks.
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
        """The name of the listener that the request came by."""
        return self.advertised.name

    @property
    def for_controller(self) -> ControllerRequestContext:
        """On whose behalf this request asks the controller for something."""
        return ControllerRequestContext(principal=self.principal)

    async def in_turns(
        self, steps: Generator[None, None, Any], keep: Callable[[list[Chunk]], None] | None = None
    ) -> Large:
        """A large answer, which `steps` makes a little at a time, while others get theirs; `keep` is told of its bytes.

        Raises:
            PeerGone: nobody waits for it any more when it is its turn.
        """
        answers = self.node.large_answers
        await answers.begin(self.client_host)
        try:
            if self.peer.gone:
                raise PeerGone
            return Large(await self.node.turns.run(self.client_host, steps), keep, answers.end)
        except BaseException:
            answers.end()
            raise


def finished(steps: Generator[None, None, R]) -> R:
    """What `steps` returns, all of it at once."""
    while True:
        try:
            next(steps)
        except StopIteration as over:
            result: R = over.value
            return result


Request = Any
"""The decoded message of the handler's API."""
