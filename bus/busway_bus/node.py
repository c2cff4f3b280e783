"""One broker node: the composition root.

Here: building, starting and stopping the parts in order, periodic maintenance.
Not here: the parts; the node's place in its cluster (`nodes.alone`, `nodes.cluster_member`).
"""

import asyncio
import contextlib
import errno
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from uuid import UUID

from busway.extras import need
from busway.net import listening as http_listening
from busway.net.machine import OS
from busway_bus.controller.brokers import RegisterBroker
from busway_bus.coordinator.group_coordinator import LOAD_GRACE_S
from busway_bus.handlers.common.context import NodeServices
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.files import DataDirectory
from busway_bus.kernel.limits import METRICS_CONNECTIONS_MAX, STOP_WAIT_MS
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.log.directories import Key
from busway_bus.log.flusher import Flusher
from busway_bus.log.meta_properties import check_formatted
from busway_bus.log.os_files import OsFiles
from busway_bus.log.store import LogStore
from busway_bus.metadata.features import SUPPORTED
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.records import TOPIC, TOPIC_ID_INT
from busway_bus.monitoring.states import LOADING, RUNNING, STOPPING
from busway_bus.nodes.alone import Alone
from busway_bus.nodes.member import Member
from busway_bus.nodes.services import ServicesBuilder
from busway_bus.replication.manager import ReplicaManager
from busway_bus.scheduling.fair_share import FairScheduler
from busway_bus.server.acceptor import StreamsOf, socket_streams
from busway_bus.server.dispatch import CLUSTERED_BROKER
from busway_bus.server.listener import CannotListen, Listeners
from busway_protocol.machine import Machine

logger = logging.getLogger("busway.node")

_SWEEP_S = 1.0
_UNFORCED_FLUSH_S = 0.1
_SNAPSHOT_S = 60.0
"""Interval of checks of the metadata snapshot's age."""
_SHARE_STATE_S = 300.0
"""Interval of share-state maintenance, as in Kafka, and age of rewritten snapshots."""
_REOPEN_S = 5.0
"""Retry interval for partitions that could not be opened."""


class Node:
    """A broker: its own controller, one of several nodes of both roles, or beside controllers.

    Args:
        machine: clocks, ids and randomness for everything below. Timers, connections and threads are the running event
            loop's.
        files: opens the data directory at the configured path.
        streams: makes the streams of a listener's clients, by its name.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        machine: Machine = OS,
        files: Callable[[str], DataDirectory] = OsFiles,
        streams: StreamsOf = socket_streams,
    ) -> None:
        self.config = config
        self._machine = machine
        self._open_files = files
        self._listeners = _listeners(config, streams)
        self._files: DataDirectory | None = None
        self._store: LogStore | None = None
        self._flusher = Flusher(self._disk_failed)
        self._services: NodeServices | None = None
        self._member: Member | None = None
        self._closing: Sequence[Callable[[], None]] = ()
        self._chores: list[asyncio.Task[None]] = []
        self._monitoring = contextlib.AsyncExitStack()
        self._state = LOADING
        self.metrics_url: str | None = None
        """The address of metrics and health, if `metrics.listener` is set."""
        self.failed: asyncio.Event = asyncio.Event()
        """Set on a disk failure. The node acknowledges nothing more and should be stopped."""

    @property
    def services(self) -> NodeServices:
        """The parts for handlers, after the start."""
        assert self._services is not None, "the node has not started"
        return self._services

    @property
    def advertised(self) -> Mapping[str, Endpoint]:
        return self._listeners.advertised

    @property
    def bootstrap_servers(self) -> str:
        return self.advertised[self.config.listeners[0].name].address

    async def start(self) -> None:
        """Open the data, then the listeners.

        Raises:
            DirectoryInUse, WrongDirectory, CorruptLog: the data directory cannot be used.
            CannotListen: the port cannot be bound.
            OSError: the disk failed.
        """
        # Before the port: a second start on the directory should fail with its owner's name.
        self._files = self._open_files(self.config.data_dir)
        try:
            await self._listeners.bind()
            if self.config.shares_cluster_id:
                check_formatted(self._files, self._machine.uuid4)
            self._store = LogStore(self._files, node_id=self.config.node_id, new_ids=self._machine.uuid4)
            member = self._member = self._make_member(self._files, self._store)
            await self._joined(member)
            images = member.images
            here, elsewhere = partitions_of(images.image, self.config.node_id)
            for line in self._store.settle(here, member.removed, elsewhere).lines():
                logger.warning("%s: %s", self.config.data_dir, line)
            scheduler = FairScheduler(self._machine)
            replicas = ReplicaManager(self.config, self._store, self._flusher, scheduler, self._machine)
            member.metadata.allow_snapshots(lambda: replicas.local.undeleted)
            await images.subscribe(replicas.local.follow)
            await member.opened(replicas)
            builder = ServicesBuilder(self.config, self._machine, member, replicas, scheduler)
            self._closing = builder.closing
            self._services = await builder.build(
                self._files, self._store.identity, self._listeners.controller_advertised
            )
            await self._serve_metrics(self._services)
            services = self._services
            loading = (services.groups.runtime, services.transactions.runtime, services.share_states.runtime)
            for runtime in loading:
                images.watch(runtime.follow)
                runtime.load()
            await asyncio.gather(*(runtime.wait_loaded(within_s=LOAD_GRACE_S) for runtime in loading))
            reserved = METRICS_CONNECTIONS_MAX if self.metrics_url is not None else 0
            member.following()
            await self._listeners.serve(self._services, self._files.connections_max() - reserved)
            await member.serving()
        except BaseException:
            await self._monitoring.aclose()
            await self._listeners.close(finish=False)
            if self._member is not None:
                await self._member.close(drain=False)
            if self._store is not None:
                self._store.close(clean=False)
            self._release()
            raise
        self._state = RUNNING
        self._chores = [asyncio.ensure_future(chore) for chore in self._all_chores()]
        opened = (*self.advertised.values(), *self.services.controller_advertised.values())
        endpoints = ", ".join(f"{endpoint.name} {endpoint.address}" for endpoint in opened)
        logger.info("node %d serves %s from %s", self.config.node_id, endpoints, self.config.data_dir)

    async def _joined(self, member: Member) -> None:
        """Join the cluster. OSError: the disk failed meanwhile, so that the metadata would never be followed."""
        joining, failed = asyncio.ensure_future(member.join()), asyncio.ensure_future(self.failed.wait())
        try:
            await asyncio.wait((joining, failed), return_when=asyncio.FIRST_COMPLETED)
            if not joining.done():
                raise OSError(
                    errno.EIO, f"the disk under {self.config.data_dir} failed while the node joined; see the log above"
                )
            joining.result()
        finally:
            for task in (joining, failed):
                task.cancel()
            await asyncio.wait((joining, failed))
            _ = joining.cancelled() or joining.exception()  # the disk's error is the one that counts

    async def _serve_metrics(self, services: NodeServices) -> None:
        """Serve metrics and health, if the settings say so.

        Raises:
            MissingExtra: the metrics extra is not installed.
            CannotListen: the address cannot be bound.
        """
        endpoint = self.config.metrics_listener
        if endpoint is None:
            return
        need("metrics", "metrics.listener")
        from busway_bus.monitoring.http import Monitoring, serve

        services.requests.clock = self._machine.monotonic_s
        monitoring = Monitoring(services, lambda: self._state, self._listeners.connection_counts)
        try:
            self.metrics_url = await self._monitoring.enter_async_context(serve(monitoring, endpoint))
        except http_listening.CannotListen as problem:
            raise CannotListen(str(problem)) from None

    def _make_member(self, files: DataDirectory, store: LogStore) -> Member:
        if not self.config.is_clustered:
            return Alone(self.config, store, self._flusher, self._machine, self._registration)
        from busway_bus.nodes.cluster_member import ClusterMember  # keeps the start of a node alone short

        return ClusterMember(
            self.config,
            files,
            store,
            flusher=self._flusher,
            machine=self._machine,
            listeners=self._listeners,
            registration=self._registration,
            on_lost=self.failed.set,
        )

    def _registration(self) -> RegisterBroker:
        assert self._store is not None
        return RegisterBroker(
            node_id=self.config.node_id,
            incarnation=self._machine.uuid4(),
            endpoints=tuple(self.advertised.values()),
            rack=self.config.get("broker.rack"),
            directories=(self._store.identity.directory_id,),
            features=tuple((name, lowest, highest) for name, (lowest, highest) in SUPPORTED.items()),
        )

    def _all_chores(self) -> list[Coroutine[None, None, None]]:
        services, config = self.services, self.config

        async def every(seconds: float, name: str, action: object) -> None:
            assert callable(action)
            last_problem = ""
            while True:
                await asyncio.sleep(seconds)
                try:
                    outcome = action()
                    if asyncio.iscoroutine(outcome):
                        await outcome
                    if last_problem:
                        logger.warning("%s works again", name)
                    last_problem = ""
                except OSError as problem:
                    if last_problem != str(problem):  # a persistent disk failure is logged once
                        last_problem = str(problem)
                        logger.error("%s failed, and is tried again: %s", name, problem)
                except Exception:
                    logger.exception("%s failed on a mistake of this broker", name)

        checkpoint_ms = min(
            config.get("log.flush.offset.checkpoint.interval.ms"),
            config.get("replica.high.watermark.checkpoint.interval.ms"),
        )
        assert self._member is not None
        return [
            *self._member.chores(),
            every(_SWEEP_S, "closing idle connections", self._listeners.sweep),
            every(_UNFORCED_FLUSH_S, "flushing", services.replicas.logs.flush_intervals),
            every(config.get("log.retention.check.interval.ms") / 1000, "retention", services.replicas.logs.maintain),
            every(
                config.get("producer.id.expiration.check.interval.ms") / 1000,
                "expiring producers",
                services.replicas.logs.expire_producers,
            ),
            every(_REOPEN_S, "opening partitions", self._reopen),
            every(_SNAPSHOT_S, "the snapshot of the metadata", services.metadata.maintain),
            every(max(checkpoint_ms, 100) / 1000, "checkpointing", services.replicas.logs.checkpoint),
            every(config.get("offsets.retention.check.interval.ms") / 1000, "expiring offsets", services.groups.expire),
            every(
                config.get("transaction.abort.timed.out.transaction.cleanup.interval.ms") / 1000,
                "aborting overdue transactions",
                services.transactions.abort_overdue,
            ),
            every(
                config.get("transaction.remove.expired.transaction.cleanup.interval.ms") / 1000,
                "expiring transactional ids",
                services.transactions.expire,
            ),
            every(_SHARE_STATE_S, "snapshots of share groups' state", self._renew_share_states),
            every(_SHARE_STATE_S, "cutting share groups' state", services.share_states.prune),
        ]

    async def _reopen(self) -> None:
        assert self._member is not None
        await self.services.replicas.local.reopen()
        await self._member.retry()
        self.services.groups.runtime.retry_failed()
        self.services.transactions.runtime.retry_failed()
        self.services.share_states.runtime.retry_failed()

    async def _renew_share_states(self) -> None:
        await self.services.share_states.renew(older_ms=int(_SHARE_STATE_S * 1000))

    async def stop(self, *, clean: bool = True) -> None:
        """Close the listeners, finish requests, close the data.

        Args:
            clean: False leaves the data as after a kill.
        """
        self._state = STOPPING
        if clean and self._member is not None:
            await self._member.leave()
        for chore in self._chores:
            chore.cancel()
        for chore in self._chores:
            with contextlib.suppress(asyncio.CancelledError):
                await chore
        self._chores = []
        await self._listeners.close(finish=clean)
        if self._member is not None:
            self._member.disconnect()
        for close in self._closing:
            close()
        if self._services is not None:
            await self._services.shares.close(within_ms=STOP_WAIT_MS if clean else 0)
            await self._services.creations.close()
            await self._services.transactions.close()
            await self._services.share_groups.close()
            self._services.groups.close()
            self._services.share_states.runtime.close()
        if self._member is not None:
            await self._member.close()
        if self._services is not None:
            await self._services.replicas.close()
            await self._services.replicas.local.close()
        await self._monitoring.aclose()
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
        logger.critical("the disk under %s failed: %s; nothing is acknowledged any more", self.config.data_dir, problem)
        self.failed.set()


def _listeners(config: BrokerConfig, streams: StreamsOf) -> Listeners:
    if not config.is_clustered:
        return Listeners(config, streams=streams)
    from busway_bus.nodes.cluster_member import CONTROLLER_ROUTES  # keeps the start of a node alone short

    return Listeners(config, CONTROLLER_ROUTES, CLUSTERED_BROKER, streams=streams)


def partitions_of(image: ClusterImage, node_id: int) -> tuple[dict[Key, UUID], dict[Key, UUID]]:
    """Return the topic ids of the partitions with a replica on a node, and of the others."""
    here: dict[Key, UUID] = {(TOPIC, 0): UUID(int=TOPIC_ID_INT)}
    elsewhere: dict[Key, UUID] = {}
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            (here if node_id in partition.replicas else elsewhere)[topic.name, index] = topic.topic_id
    return here, elsewhere
