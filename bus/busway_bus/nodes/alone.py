"""The metadata of a node that is its cluster's only voter and broker.

Here: formatting, new epochs after a kill, registration, reports of offline partitions.
Not here: decisions (`controller`), several nodes (`cluster_member`).
"""

from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any
from uuid import UUID

from busway_bus.controller.brokers import RegisterBroker, addresses
from busway_bus.controller.controller import ITSELF
from busway_bus.controller.leaders import BeginEpochs
from busway_bus.kernel.config import BrokerConfig
from busway_bus.log.flusher import Flusher
from busway_bus.log.store import LogStore
from busway_bus.metadata.image import ClusterImage
from busway_bus.nodes.offline_reports import OfflineReports
from busway_bus.quorum.local_controller import LocalController
from busway_bus.quorum.metadata_log import MetadataLog
from busway_bus.quorum.metadata_snapshots import SnapshotLimits
from busway_bus.replication.manager import ReplicaManager
from busway_protocol.errors import KafkaError
from busway_protocol.machine import Machine


class Alone:
    """A `nodes.member.Member`.

    Args:
        registration: makes the registration of this start.
    """

    forwarding = to_controller = to_brokers = None

    def __init__(
        self,
        config: BrokerConfig,
        store: LogStore,
        flusher: Flusher,
        machine: Machine,
        registration: Callable[[], RegisterBroker],
    ) -> None:
        self._config, self._store, self._registration = config, store, registration
        self.metadata = self.images = MetadataLog(store, flusher, machine, SnapshotLimits.of(config))
        self.controller = LocalController(config, self.metadata, machine.uuid4, monotonic_s=machine.monotonic_s)
        self._replicas: ReplicaManager
        self._registered = False
        self._reports = OfflineReports(self.controller)

    @property
    def removed(self) -> Collection[UUID]:
        return self.metadata.removed

    async def join(self) -> None:
        await self.metadata.format()

    async def opened(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        if not self._store.clean:
            await self._begin_epochs(replicas)
        await self._register(self.metadata.image)
        await self._reports.send(replicas.local)
        self._reports.follow(self.metadata, replicas.local)

    def following(self) -> None:
        """Do nothing: the parts follow from their subscription on."""

    async def serving(self) -> None:
        """Do nothing: this broker is never fenced."""

    def chores(self) -> Sequence[Coroutine[Any, Any, None]]:
        return [self._reports.run(self._replicas.local)]

    async def retry(self) -> None:
        if not self._registered:
            await self._register(self.metadata.image)
        await self._reports.send(self._replicas.local)

    async def leave(self) -> None:
        """Do nothing: no other node takes over."""

    def disconnect(self) -> None:
        """Do nothing: there are no connections."""

    async def close(self, *, drain: bool = True) -> None:
        if drain:
            await self.metadata.drain()

    async def _begin_epochs(self, replicas: ReplicaManager) -> None:
        """Start new leader epochs after an unclean stop; see `ReplicaManager.may_have_lost`.

        Raises:
            OSError: they cannot be written, so clients would not notice losses.
        """
        try:
            await self.controller.request(BeginEpochs(partitions=tuple(replicas.may_have_lost())), ITSELF)
        except KafkaError as problem:
            raise OSError(f"the start after a kill cannot be written down: {problem}") from problem

    async def _register(self, image: ClusterImage) -> None:
        """Register with the controller; retry later with unchanged addresses.

        Raises:
            OSError: it cannot write, and they have changed.
        """
        registration = self._registration()
        try:
            await self.controller.request(registration, ITSELF)
        except KafkaError as problem:
            registered = image.brokers.get(self._config.node_id)
            if registered is None or registered.addresses != addresses(registration):
                text = f"this broker cannot be registered under other addresses than before: {problem}"
                raise OSError(text) from problem
            self._reports.postponed("this start cannot be registered yet, and is tried again: %s", problem)
        else:
            self._registered = True
