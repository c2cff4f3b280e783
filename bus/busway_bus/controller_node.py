"""One controller node that is no broker: the composition root.

Here: building, connecting, starting and stopping the parts in order.
Not here: anything a part does, and the combined node (`node`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from busway.net.machine import OS
from busway_bus.handlers.for_controllers.registry import HANDLERS
from busway_bus.handlers.for_controllers.services import ControllerServices
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.files import DataDirectory
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.log.flusher import Flusher
from busway_bus.log.meta_properties import check_formatted
from busway_bus.log.os_files import OsFiles
from busway_bus.log.store import LogStore
from busway_bus.nodes.balancing import elect_periodically
from busway_bus.nodes.fencing import Fencing
from busway_bus.nodes.quorum_member import QuorumMember
from busway_bus.quorum.driver import QuorumDriver
from busway_bus.quorum.local_controller import LocalController
from busway_bus.scheduling.fair_share import FairScheduler
from busway_bus.server.dispatch import Routes
from busway_bus.server.listener import Listeners
from busway_protocol.machine import Machine

logger = logging.getLogger("busway.controller")

_ROUTES: Final = Routes(HANDLERS)
_SWEEP_S: Final = 1.0
_SNAPSHOT_S: Final = 60.0
"""Interval of checks whether the last metadata snapshot is too old."""


class ControllerNode:
    """A controller; arguments and attributes are those of `node.Node`."""

    def __init__(
        self, config: BrokerConfig, *, machine: Machine = OS, files: Callable[[str], DataDirectory] = OsFiles
    ) -> None:
        assert config.is_controller_alone, "this node is a broker"
        self.config = config
        self._machine = machine
        self._open_files = files
        self._listeners = Listeners(config, _ROUTES)
        self._files: DataDirectory | None = None
        self._store: LogStore | None = None
        self._flusher = Flusher(self._disk_failed)
        self._driver: QuorumDriver | None = None
        self._services: ControllerServices | None = None
        self._fencing: Fencing | None = None
        self._chores: list[asyncio.Task[None]] = []
        self.failed: asyncio.Event = asyncio.Event()
        """Set on a disk failure or a loss of committed records. The node responds no more and should be stopped."""

    @property
    def services(self) -> ControllerServices:
        """The parts for handlers, after the start."""
        assert self._services is not None, "the node has not started"
        return self._services

    @property
    def advertised(self) -> Mapping[str, Endpoint]:
        return self._listeners.controller_advertised

    @property
    def bootstrap_servers(self) -> str:
        return self.advertised[self.config.controller_listeners[0].name].address

    async def start(self) -> None:
        """Open the data, join the quorum, open the listeners. It may have no leader yet.

        Raises:
            DirectoryInUse, WrongDirectory, CorruptLog: the data directory cannot be used.
            CannotListen: the port cannot be bound.
        """
        self._files = self._open_files(self.config.data_dir)
        try:
            await self._listeners.bind()
            if self.config.shares_cluster_id:
                check_formatted(self._files, self._machine.uuid4)
            self._store = LogStore(self._files, node_id=self.config.node_id, new_ids=self._machine.uuid4)
            member = QuorumMember(self.config, self._store, self._flusher, self._machine, self.failed.set)
            metadata, self._driver = member.metadata, member.driver
            metadata.allow_snapshots(lambda: False)
            controller = LocalController(
                self.config,
                metadata,
                self._machine.uuid4,
                monotonic_s=self._machine.monotonic_s,
                cluster_id=self._store.identity.cluster_id,
            )
            fencing = self._fencing = Fencing(
                controller,
                metadata,
                session_ms=self.config.get("broker.session.timeout.ms"),
                listener=self.config.inter_broker_listener,
            )
            self._services = ControllerServices(
                config=self.config,
                machine=self._machine,
                cluster_id=self._store.identity.cluster_id,
                directory_id=self._store.identity.directory_id,
                metadata=metadata,
                controller=controller,
                liveness=fencing,
                quorum=self._driver,
                scheduler=FairScheduler(self._machine),
                listener=self.config.controller_listeners[0].name,
                addresses=self.config.voters,
                controller_advertised=self._listeners.controller_advertised,
            )
            member.begin()  # before the first request
            await self._listeners.serve(self._services, self._files.connections_max())
        except BaseException:
            await self._listeners.close()
            if self._driver is not None:
                await self._driver.close()
            if self._store is not None:
                self._store.close(clean=False)
            self._release()
            raise
        chores: list[Coroutine[Any, Any, None]] = [
            _every(_SWEEP_S, self._listeners.sweep),
            _every(_SNAPSHOT_S, metadata.maintain),
            member.format(),
            fencing.watch_sessions(),
            fencing.watch_connections(),
            elect_periodically(controller, metadata, self.config),
        ]
        self._chores = [asyncio.ensure_future(chore) for chore in chores]
        endpoints = ", ".join(f"{endpoint.name} {endpoint.address}" for endpoint in self.advertised.values())
        logger.info("controller %d serves %s from %s", self.config.node_id, endpoints, self.config.data_dir)

    async def stop(self, *, clean: bool = True) -> None:
        """Resign, close the listeners, leave the data for a clean start.

        Args:
            clean: False leaves the data as a killed process does.
        """
        for chore in self._chores:
            chore.cancel()
        for chore in self._chores:
            with contextlib.suppress(asyncio.CancelledError):
                await chore
        self._chores = []
        if self._fencing is not None:
            self._fencing.close()
        if self._driver is not None and clean:
            await self._driver.resign()
        await self._listeners.close(finish=False)
        if self._driver is not None:
            await self._driver.close()
        if self._services is not None:
            await self._services.metadata.drain()
        await self._flusher.drain()
        if self._store is not None and not self.failed.is_set():
            self._store.close(clean=clean)
        self._release()

    def _release(self) -> None:
        self._flusher.close()
        if self._files is not None:
            self._files.close()
            self._files = None

    def _disk_failed(self, problem: OSError) -> None:
        logger.critical("the disk under %s failed: %s; nothing is answered any more", self.config.data_dir, problem)
        self.failed.set()


async def _every(seconds: float, action: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        action()
