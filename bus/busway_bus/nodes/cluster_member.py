"""A broker in a cluster, with its controller where it is a voter too.

Here: the metadata log, the channels and the lifecycle, started and stopped in order.
Not here: what each of them does; the broker's other parts (`node`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Final
from uuid import UUID

from busway_bus.controller.brokers import RegisterBroker
from busway_bus.handlers.for_controllers.registry import HANDLERS
from busway_bus.handlers.for_controllers.services import ControllerServices
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.files import DataDirectory
from busway_bus.log.flusher import Flusher
from busway_bus.log.store import LogStore
from busway_bus.nodes.balancing import elect_periodically
from busway_bus.nodes.broker_images import BrokerImages
from busway_bus.nodes.channels import ActiveController, BrokerConnections
from busway_bus.nodes.fencing import Fencing
from busway_bus.nodes.forwarding import Forwarder
from busway_bus.nodes.kept_records import keeps_records
from busway_bus.nodes.lifecycle import BrokerLifecycle, CannotRegister
from busway_bus.nodes.quorum_member import QuorumMember
from busway_bus.nodes.remote_controller import RemoteController
from busway_bus.quorum.local_controller import LocalController
from busway_bus.replication.directory_assignments import DirectoryAssignments
from busway_bus.replication.manager import ReplicaManager
from busway_bus.scheduling.fair_share import FairScheduler
from busway_bus.server.dispatch import Routes
from busway_bus.server.listener import Listeners
from busway_protocol.machine import Machine

logger = logging.getLogger("busway.node")

CONTROLLER_ROUTES: Final = Routes(HANDLERS)
FORWARD_RETRY_MS: Final = 60_000
"""How long requests wait for a controller, as in Kafka's BrokerServer."""
SHUTDOWN_S: Final = 10.0
"""Bound of a controlled shutdown."""
LEADERLESS_S: Final = 2.0
"""How long a controlled shutdown goes on without a leader of the quorum."""
UNFENCED_S: Final = 30.0
"""Wait of a start until this broker is unfenced; it serves already."""
CAUGHT_UP_S: Final = 5.0
"""Wait of a start after a kill until the metadata is known again that this node had."""
_LOOK_S: Final = 0.02
_WARN_EVERY_S: Final = 10.0
"""Interval of log lines while there is no leader."""


class ClusterMember:
    """A `nodes.member.Member`.

    Args:
        registration: makes the registration of this start, once the ports are bound.
        on_lost: called when this node must stop: its committed records differ from its leader's.
    """

    def __init__(
        self,
        config: BrokerConfig,
        files: DataDirectory,
        store: LogStore,
        *,
        flusher: Flusher,
        machine: Machine,
        listeners: Listeners,
        registration: Callable[[], RegisterBroker],
        on_lost: Callable[[], None],
    ) -> None:
        self._config, self._files, self._store, self._machine = config, files, store, machine
        self._listeners = listeners
        self._quorum = QuorumMember(config, store, flusher, machine, on_lost)
        self.metadata = self._quorum.metadata
        self._known_end_offset = self.metadata.log.end_offset
        self.images = BrokerImages(self.metadata)
        session_ms = config.get("broker.session.timeout.ms")
        self._heartbeats = self._channel(session_ms // 2)
        self._forwards = self._channel(FORWARD_RETRY_MS)
        self.to_controller = self._channel(FORWARD_RETRY_MS)
        self.to_brokers = BrokerConnections(
            config.node_id,
            config.inter_broker_listener,
            lambda: self.images.image,
            connect_ms=config.get("socket.connection.setup.timeout.ms"),
        )
        self.forwarding = Forwarder(self._forwards)
        self.controller = RemoteController(config.node_id, self.to_controller, self.images, self._leader)
        self.lifecycle: BrokerLifecycle = BrokerLifecycle(
            self._heartbeats,
            registration(),
            cluster_id=store.identity.cluster_id,
            metadata_offset=lambda: self.images.image_offset,
            heartbeat_ms=config.get("broker.heartbeat.interval.ms"),
            session_ms=session_ms,
            registration_ms=config.get("initial.broker.registration.timeout.ms"),
            machine=machine,
            check=self._check_voters,
        )
        self._local = LocalController(
            config,
            self.metadata,
            machine.uuid4,
            monotonic_s=machine.monotonic_s,
            cluster_id=store.identity.cluster_id,
        )
        self._fencing = Fencing(
            self._local, self.metadata, session_ms=session_ms, listener=config.inter_broker_listener
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._assignments: DirectoryAssignments

    def _channel(self, retry_ms: int) -> ActiveController:
        timeout_ms = self._config.get("controller.socket.timeout.ms")
        return ActiveController(
            self._config.node_id, self._config.voters, self._leader, timeout_ms=timeout_ms, retry_ms=retry_ms
        )

    def _leader(self) -> int:
        return self._quorum.driver.leader_id

    @property
    def removed(self) -> Collection[UUID]:
        return self.images.removed

    async def join(self) -> None:
        """Join the quorum, register, and catch up with the metadata up to the registration.

        The controller's listeners open first: without them no leader is elected.

        Raises:
            CannotRegister: the controller refuses this broker.
        """
        await self.images.collect()
        self._quorum.begin()  # before the first request
        if not self._config.is_broker_alone:
            await self._listeners.serve_controllers(self._controller_services(), self._files.connections_max())
            self._run(self._quorum.format())
            self._run(self._fencing.watch_sessions())
            self._run(self._fencing.watch_connections())
            self._run(elect_periodically(self._local, self.metadata, self._config))
        await self._led()
        self.lifecycle.previous_epoch = await self._previous_epoch()
        await self.lifecycle.register()
        self._store.registered(self.lifecycle.epoch)
        await self.images.until(lambda: self.metadata.image_offset >= self.lifecycle.epoch)
        self.images.begin()
        self._run(self.lifecycle.run())

    async def _previous_epoch(self) -> int:
        """Return the epoch of this broker's last run, -1 if it may have lost acknowledged records.

        After a kill the topics decide, as of all metadata that this node had.
        """
        store = self._store
        if store.clean or store.last_broker_epoch < 0:
            return store.previous_broker_epoch
        try:
            async with asyncio.timeout(CAUGHT_UP_S):
                await self.images.until(lambda: self.metadata.image_offset + 1 >= self._known_end_offset)
        except TimeoutError:
            return -1
        return store.last_broker_epoch if keeps_records(self.images.image, self._config) else -1

    def _controller_services(self) -> ControllerServices:
        config, identity = self._config, self._store.identity
        return ControllerServices(
            config=config,
            machine=self._machine,
            cluster_id=identity.cluster_id,
            directory_id=identity.directory_id,
            metadata=self.metadata,
            controller=self._local,
            liveness=self._fencing,
            quorum=self._quorum.driver,
            scheduler=FairScheduler(self._machine),
            listener=config.controller_listeners[0].name,
            addresses=config.voters,
            controller_advertised=self._listeners.controller_advertised,
        )

    async def _led(self) -> None:
        """Wait until a voter leads, and say so.

        Raises:
            CannotRegister: most voters belong to another cluster.
        """
        loop = asyncio.get_running_loop()
        warned_s = loop.time()
        while not self._is_led:
            self._check_voters()
            if loop.time() - warned_s >= _WARN_EVERY_S:
                warned_s = loop.time()
                logger.warning(
                    "node %d waits for a leader of the quorum: more than half of the voters %s must run",
                    self._config.node_id,
                    sorted(self._config.voters),
                )
            await asyncio.sleep(_LOOK_S)

    @property
    def _is_led(self) -> bool:
        """Whether a voter leads. A restarted leader still names itself, and leads no more in that epoch."""
        leader_id = self._leader()
        return leader_id >= 0 and (leader_id != self._config.node_id or self._quorum.driver.leading)

    def _check_voters(self) -> None:
        """Raise CannotRegister if most voters belong to another cluster."""
        foreign_voters = self._quorum.driver.foreign_voters
        if foreign_voters and 2 * len(foreign_voters) > len(self._config.voters):
            raise CannotRegister(
                f"the voters {sorted(foreign_voters)} belong to another cluster: meta.properties of this node has another cluster.id. "
                f"Choose an empty directory, format it with their cluster's id, or correct controller.quorum.voters"
            )

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def opened(self, replicas: ReplicaManager) -> None:
        """Replicate from now on.

        The registration after a kill tells the controller that this broker may have lost records.
        """
        replicas.replicate(
            brokers=self.to_brokers, controller=self.to_controller, broker_epoch=lambda: self.lifecycle.epoch
        )
        self._assignments = DirectoryAssignments(
            self._config.node_id, lambda: self.lifecycle.epoch, self.to_controller, replicas.local.misplaced
        )
        self.images.watch(self._assignments.look)
        self._run(self._assignments.run())
        self._assignments.look()

    def following(self) -> None:
        self.images.follow()

    async def serving(self) -> None:
        """Have this broker unfenced, and wait for it."""
        self.lifecycle.ready()
        try:
            async with asyncio.timeout(UNFENCED_S):
                await self.lifecycle.unfenced.wait()
                await self.images.until(lambda: not self._fenced())
        except TimeoutError:
            logger.warning("node %d serves, but no controller has unfenced it yet", self._config.node_id)

    def _fenced(self) -> bool:
        broker = self.images.image.brokers.get(self._config.node_id)
        return broker is None or broker.fenced

    def chores(self) -> Sequence[Coroutine[Any, Any, None]]:
        return []

    async def retry(self) -> None:
        self._assignments.look()

    async def leave(self) -> None:
        leaving = asyncio.ensure_future(self.lifecycle.shut_down(SHUTDOWN_S))
        loop = asyncio.get_running_loop()
        led_s = loop.time()
        while not leaving.done():
            await asyncio.wait([leaving], timeout=_LOOK_S)
            if self._leader() >= 0:
                led_s = loop.time()
            elif loop.time() - led_s >= LEADERLESS_S:  # most other voters stop, too
                leaving.cancel()
                break
        await asyncio.wait([leaving])
        await self._quorum.driver.resign()

    def disconnect(self) -> None:
        for channel in (self._heartbeats, self._forwards, self.to_controller, self.to_brokers):
            channel.close()

    async def close(self, *, drain: bool = True) -> None:
        self.disconnect()
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks = []
        self._fencing.close()
        await self._quorum.driver.close()
        await self.images.close()
        if drain:
            await self.metadata.drain()
