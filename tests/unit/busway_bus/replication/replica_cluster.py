"""Brokers that replicate with each other in a simulated world: their logs, fetchers and handlers, without sockets.

Here: hosts with a disk and a `ReplicaManager`, channels that lose requests, a controller that decides with the real commands and never fails.
Not here: what happens to them, and what must hold (`test_replicas`, `tests.simulation.replicas`).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

from tests.unit.busway_bus.replication.replica_controller import LISTENER, SETTINGS, Controller, Watch

from busway_bus.controller.brokers import BrokerHeartbeat, RegisterBroker
from busway_bus.controller.lost_brokers import FenceBroker
from busway_bus.controller.topics import CreateTopics, NewTopic
from busway_bus.handlers import delete_records, fetch, list_offsets, offset_for_leader_epoch, produce
from busway_bus.handlers.common.context import Peer, RequestContext
from busway_bus.handlers.common.pending_response import PendingResponse
from busway_bus.handlers.for_controllers import alter_partition
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.kernel.transactions import EndTransaction
from busway_bus.log.append_info import AppendInfo
from busway_bus.log.flusher import Flusher
from busway_bus.log.inspection import RECORDS_ON_LOOP_MAX
from busway_bus.log.store import LogStore
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.features import SUPPORTED
from busway_bus.metadata.image import ClusterImage, PartitionImage
from busway_bus.replication.fetch_sessions import FetchSessions
from busway_bus.replication.manager import InspectionBudget, ReplicaManager
from busway_bus.replication.partition import Partition
from busway_bus.replication.partition_state import ACKS_ALL
from busway_bus.scheduling.fair_share import FairScheduler
from busway_bus.testing.sim_files import SimFiles
from busway_bus.testing.world import Crashed, SimProcess, World
from busway_protocol.apis import api
from busway_protocol.compile import decode, encode_chunks
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import TRANSACTIONAL, read_header
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.schema import info_of

TOPIC: Final = "t"
HANDLERS: Final = {
    handler.API: handler for handler in (delete_records, fetch, list_offsets, offset_for_leader_epoch, produce)
}


def over_the_wire(message: Any, version: int) -> Any:
    """A message as the other side has it."""
    chunks = encode_chunks(message, version)
    data = b"".join(chunk.take(len(chunk)) if hasattr(chunk, "take") else chunk for chunk in chunks)
    return decode(type(message), version, data)


class Channels:
    """The channels of one host to the others and to the controller."""

    def __init__(self, cluster: "ReplicaCluster", node_id: int) -> None:
        self._cluster, self._node_id = cluster, node_id

    async def send(self, *arguments: Any, **options: Any) -> Any:
        """To a broker, or with one argument to the controller."""
        if len(arguments) == 1:
            return await self._cluster.to_controller(arguments[0])
        return await self._cluster.to_broker(self._node_id, *arguments, timeout_ms=options["timeout_ms"])


class ReplicaHost:
    """A broker: its disk outlives it."""

    def __init__(self, cluster: "ReplicaCluster", node_id: int) -> None:
        self.cluster, self.node_id = cluster, node_id
        self.disk = SimFiles(cluster.world.chance(f"disk{node_id}"))
        self.config = BrokerConfig.from_properties({"node.id": str(node_id), **SETTINGS, **cluster.settings})
        self.disk.waits = self._wait
        self.process: SimProcess | None = None
        self.replicas: ReplicaManager
        self.epoch = -1
        self.starts = 0
        self.feed_delay_s = 0.02
        """Mean time in which it reads a change of the metadata."""
        self.lossy = False
        """Whether its last end may have cost acknowledged records."""
        self.has_lost = False
        """Whether a test still counts it as one that lacks records."""
        self._feed: deque[tuple[ClusterImage, Delta, int]] = deque()
        self._fed = asyncio.Event()

    def _wait(self, seconds: float) -> None:
        self.cluster.world.host(f"n{self.node_id}").waited_s += seconds

    def wipe(self) -> None:
        """Give it an empty disk, formatted with the id of the old one: no replica has to be assigned to another directory."""
        self.disk.power_on()
        properties = self.disk.read_bytes("meta.properties")
        self.disk = SimFiles(self.cluster.world.chance(f"disk{self.node_id}/{self.starts}"))
        self.disk.replace("meta.properties", properties)
        self.disk.waits = self._wait

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.alive

    def publish(self, image: ClusterImage, delta: Delta, offset: int) -> None:
        """It reads this when it comes to it."""
        self._feed.append((image, delta, offset))
        self._fed.set()

    async def start(self) -> None:
        """Open the logs, register, follow."""
        self.disk.power_on()
        self.starts += 1
        process = self.process = self.cluster.world.process(f"n{self.node_id}")
        await process.run(self._start)
        process.start(self._follow)

    async def _start(self) -> None:
        assert self.process is not None
        machine = self.process.process.machine
        store = LogStore(self.disk, node_id=self.node_id, new_ids=machine.uuid4)
        flusher = Flusher(lambda problem: None)
        self.replicas = ReplicaManager(self.config, store, flusher, FairScheduler(machine), machine)
        self._sessions = FetchSessions(100)
        self._feed.clear()
        previous, self.epoch = -1 if self.lossy else self.epoch, -1
        self.lossy = False
        channels = Channels(self.cluster, self.node_id)
        self.replicas.replicate(brokers=channels, controller=channels, broker_epoch=lambda: self.epoch)
        self.epoch = await self.cluster.controller.request(
            RegisterBroker(
                node_id=self.node_id,
                incarnation=UUID(int=self.node_id * 1_000 + self.starts),
                endpoints=(Endpoint(name=LISTENER, host=f"n{self.node_id}", port=9092),),
                rack=f"rack{self.node_id}",
                directories=(store.identity.directory_id,),
                features=tuple((name, lowest, highest) for name, (lowest, highest) in SUPPORTED.items()),
                joins=True,
                previous_epoch=previous,
            )
        )
        self._feed.clear()
        image, delta = self.cluster.controller.everything()
        offset = len(self.cluster.controller.records)
        await self.replicas.local.follow(image, delta)
        self._heartbeat(offset)

    async def _follow(self) -> None:
        chance = self.cluster.world.chance(f"feed{self.node_id}/{self.starts}")
        while True:
            while not self._feed:
                self._fed.clear()
                await self._fed.wait()
            await asyncio.sleep(chance.expovariate(1 / self.feed_delay_s))
            image, delta, offset = self._feed.popleft()
            await self.replicas.local.follow(image, delta)
            self._heartbeat(offset)

    def heartbeat(self) -> None:
        """Tell the controller that all metadata is applied here; a fenced broker is unfenced."""
        self._heartbeat(len(self.cluster.controller.records))

    def _heartbeat(self, offset: int) -> None:
        """Tell the controller how far the metadata is applied here."""
        beat = BrokerHeartbeat(node_id=self.node_id, epoch=self.epoch, metadata_offset=offset)
        self.cluster.controller.decide(beat)

    async def handle(self, request: Any, version: int) -> Any:
        """The response of a handler."""
        key = info_of(type(request)).api_key
        assert self.process is not None
        node: Any = SimpleNamespace(
            config=self.config,
            node_id=self.node_id,
            image=self.replicas.local.image,
            replicas=self.replicas,
            sessions=self._sessions,
            machine=self.process.process.machine,
            scheduler=self.replicas.scheduler,
        )
        epochs, served = self.epochs(), self.cluster.watch.served_until_now()
        context = RequestContext(
            api_version=version,
            client_id=None,
            client_host="h",
            advertised=self.config.listeners[0],
            peer=Peer(),
            node=node,
        )
        answer = HANDLERS[key].handle(request, context)  # type: ignore[index, operator]
        if isinstance(answer, PendingResponse):
            done = asyncio.get_running_loop().create_future()
            answer.when_done(lambda: done.done() or done.set_result(None))
            await done
            if answer.problem is not None:
                raise answer.problem
            answer = answer.response
        elif isinstance(answer, Awaitable):
            answer = await answer
        if key == fetch.API and request.replica_state.replica_id >= 0:
            self.cluster.watch.served((self.node_id, self.starts), request, answer, epochs, self.epochs(), served)
        return over_the_wire(answer, version)

    def epochs(self) -> dict[int, int]:
        """Leader epochs of the partitions here, by number."""
        return {partition.index: partition.leader_epoch for partition in self.replicas.local}

    def crash(self, *, power: bool) -> None:
        """Kill the process; without power its disk loses what was not synced, too."""
        assert self.process is not None
        self.process.crash()
        self.disk.power_off()
        if not power:
            self.disk.cut_power(self.cluster.world.chance(f"cut{self.node_id}/{self.starts}").randrange)

    async def append(self, index: int, value: bytes) -> int:
        """Write one record with acks=all; return its offset. KafkaError: refused, or not known."""
        builder = BatchBuilder()
        builder.append(1_700_000_000_000, None, value)
        return await self.write(index, builder.build())

    async def write(self, index: int, batch: bytes, slowly: bool = False) -> int:
        """Write a batch with acks=all; return its first offset. KafkaError: refused, or not known.

        `slowly`: it is inspected in a thread, as a large one is.
        """
        partition = self.replicas.find(TOPIC, index)
        header = read_header(batch)
        assert self.process is not None
        now_ms = self.process.process.machine.wall_ms()
        verification = (
            partition.log.producers.verification(header, now_ms, from_zero=True)
            if header.attributes & TRANSACTIONAL
            else None
        )
        budget = InspectionBudget()
        if slowly:
            budget.take(RECORDS_ON_LOOP_MAX)
        written = self.replicas.append_from_client(partition, batch, ACKS_ALL, budget, verification)
        info = await written if isinstance(written, asyncio.Task) else written
        return await self._acknowledged(partition, info)

    async def mark(self, index: int, marker: EndTransaction) -> int:
        """Write a transaction's marker; return its offset. KafkaError as above."""
        partition = self.replicas.find(TOPIC, index)
        info, acknowledged = self.replicas.append_marker(partition, marker)
        if acknowledged is not None:
            await acknowledged
        self.cluster.watch.acknowledged(index, info.last_offset)
        return info.last_offset

    async def _acknowledged(self, partition: Partition, info: AppendInfo) -> int:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def acknowledged(problem: KafkaError | None) -> None:
            if done.done():
                return
            if problem is None:
                self.cluster.watch.acknowledged(partition.index, info.last_offset)
                done.set_result(None)
            else:
                done.set_exception(problem)

        if self.replicas.await_acks(partition, info, ACKS_ALL, acknowledged):
            await done
        else:
            self.cluster.watch.acknowledged(partition.index, info.last_offset)
        return info.first_offset


class ReplicaCluster:
    """Brokers 1 to `count` with one topic on all of them.

    Attributes:
        cut: pairs of broker ids whose requests are lost.
        delay_s: mean of a message's way.
        controller_delay_s: the same, to the controller and back.
        delayed: share of messages that take twenty times as long.
        lost_responses: share of clients' requests that are carried out without an answer.
    """

    def __init__(self, world: World, count: int = 3, *, settings: dict[str, str] | None = None) -> None:
        self.world = world
        self.settings = settings or {}
        self.controller = Controller(lambda: world.now)
        self.hosts = {node_id: ReplicaHost(self, node_id) for node_id in range(1, count + 1)}
        self.controller.followers = {node_id: host.publish for node_id, host in self.hosts.items()}
        self.cut: set[tuple[int, int]] = set()
        self.delay_s = self.controller_delay_s = 0.001
        self.delayed, self.lost_responses = 0.0, 0.0
        self._network = world.chance("network")
        self._wire = world.process("network")

    async def start(self, partitions: int = 1, **configs: str) -> None:
        """Start all, and create the topic with each broker as the preferred leader in turn."""
        for host in self.hosts.values():
            await host.start()
        ids = list(self.hosts)
        assignments = tuple(
            (index, tuple(ids[index % len(ids) :] + ids[: index % len(ids)])) for index in range(partitions)
        )
        self.controller.decide(
            CreateTopics(
                topics=(
                    NewTopic(
                        name=TOPIC,
                        assignments=assignments,
                        configs={key.replace("_", "."): value for key, value in configs.items()},
                    ),
                )
            )
        )
        await self.until(lambda: all(self.partition_on(node_id, 0) is not None for node_id in ids))

    async def restart(self, node_id: int) -> None:
        """Start a crashed broker again, which the controller has noticed by then."""
        self.fence(node_id)
        await self.hosts[node_id].start()

    def crash(self, node_id: int, *, power: bool = True) -> None:
        """Crash a broker; the controller fences it later, or at its next registration (see `fence`)."""
        self.hosts[node_id].crash(power=power)

    def fence(self, node_id: int) -> None:
        """The controller notices that a broker is gone."""
        self.controller.decide(FenceBroker(node_id=node_id, epoch=self.controller.image.brokers[node_id].epoch))

    def partition(self, index: int = 0) -> PartitionImage:
        """A partition as the controller has it."""
        placed = self.controller.image.partition(TOPIC, index)
        assert placed is not None
        return placed

    def partition_on(self, node_id: int, index: int = 0) -> Partition | None:
        """A partition on a broker that runs."""
        host = self.hosts[node_id]
        return host.replicas.local.get((TOPIC, index)) if host.alive else None

    async def until(self, condition: Callable[[], bool], within_s: float = 60.0) -> None:
        """Wait in virtual time. AssertionError: it does not come."""
        end = self.world.now + within_s
        while not condition():
            assert self.world.now < end, "it does not come"
            await asyncio.sleep(0.01)

    def in_sync(self) -> bool:
        """Whether each partition has a leader and all brokers in its ISR, and each of them has its log and high watermark."""
        topic = self.controller.image.topics[TOPIC]
        for index, placed in enumerate(topic.partitions):
            if placed.leader < 0 or len(placed.isr) < len(self.hosts):
                return False
            replicas = [self.partition_on(node_id, index) for node_id in self.hosts]
            if any(replica is None or replica.state.leader_epoch != placed.leader_epoch for replica in replicas):
                return False
            if len({(replica.log.end_offset, replica.high_watermark) for replica in replicas if replica}) > 1:
                return False
            if any(replica.high_watermark != replica.log.end_offset for replica in replicas if replica):
                return False
        return True

    async def ask(self, node_id: int, request: Any, version: int | None = None) -> Any:
        """A client's request to one broker."""
        host = self.hosts[node_id]
        assert host.process is not None
        version = info_of(type(request)).max_version if version is None else version
        return await host.process.run(host.handle, over_the_wire(request, version), version)

    async def produce(self, index: int, value: bytes, within_s: float = 10.0) -> int:
        """Write a record to the leader with acks=all. KafkaError or Crashed: maybe not written."""
        return await self.at_leader(index, ReplicaHost.append, value, within_s=within_s)

    async def at_leader(self, index: int, work: Callable[..., Any], *arguments: Any, within_s: float = 10.0) -> int:
        """Call a method of the leader's host for a partition. KafkaError or Crashed: maybe not done."""
        host = self.hosts.get(self.partition(index).leader)
        if host is None or not host.alive:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        assert host.process is not None
        await asyncio.sleep(self._way(self.delay_s))
        if not host.alive:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        try:
            async with asyncio.timeout(within_s):
                done = int(await host.process.run(work, host, index, *arguments))
            if self.lost_responses and self._network.random() < self.lost_responses:
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION)
            return done
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from None

    @property
    def watch(self) -> Watch:
        return self.controller.watch

    # The network

    def _way(self, mean_s: float) -> float:
        if self.delayed and self._network.random() < self.delayed:
            mean_s *= 20
        return self._network.expovariate(1 / mean_s)

    async def to_broker(self, sender: int, receiver: int, request: Any, *, timeout_ms: int) -> Any:
        """As of `BrokerChannels.send`. What was sent arrives even if the sender ends."""
        return await self._wire.run(self._to_broker, sender, receiver, request, timeout_ms)

    async def _to_broker(self, sender: int, receiver: int, request: Any, timeout_ms: int) -> Any:
        await asyncio.sleep(self._way(self.delay_s))
        version = info_of(type(request)).max_version
        request = over_the_wire(request, version)
        host = self.hosts[receiver]
        if not host.alive:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        if (sender, receiver) in self.cut:
            await asyncio.sleep(timeout_ms / 1000)
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION)
        assert host.process is not None
        try:
            response = await host.process.run(host.handle, request, version)
        except Crashed:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION) from None
        await asyncio.sleep(self._way(self.delay_s))
        if (receiver, sender) in self.cut:
            await asyncio.sleep(timeout_ms / 1000)
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION)
        return response

    async def to_controller(self, request: Any) -> Any:
        """As of `ControllerChannel.send`; a retry may have been carried out before. What was sent arrives even if the sender ends."""
        return await self._wire.run(self._to_controller, request)

    async def _to_controller(self, request: Any) -> Any:
        version = info_of(type(request)).max_version
        key = info_of(type(request)).api_key
        assert key == alter_partition.API
        context: Any = SimpleNamespace(
            api_version=version, node=SimpleNamespace(controller=self.controller), for_controller=None
        )
        while True:
            await asyncio.sleep(self._way(self.controller_delay_s))
            image = self.controller.image
            response = await alter_partition.handle(over_the_wire(request, version), context)
            self.watch.altering(request, response, image)
            await asyncio.sleep(self._way(self.controller_delay_s))
            if self._network.random() > 0.05:
                return over_the_wire(response, version)


__all__ = ["TOPIC", "ReplicaCluster", "Watch", "api"]
