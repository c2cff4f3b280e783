"""Several brokers without sockets: their replicas, copied when a test says so, and channels between them."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import UUID

from tests.support.waiting import until

from busway.net.machine import OS
from busway_bus.kernel.config import BrokerConfig
from busway_bus.log.flusher import Flusher
from busway_bus.log.store import LogStore
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import UNASSIGNED, ClusterImage, TopicImage
from busway_bus.metadata.records import (
    BrokerEndpoint,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from busway_bus.replication.manager import ReplicaManager
from busway_bus.replication.partition import Partition
from busway_bus.replication.partition_state import Role
from busway_bus.scheduling.fair_share import FairScheduler
from busway_bus.testing.sim_files import SimFiles
from busway_bus.testing.sim_process import PROCESS
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.machine import Machine
from busway_protocol.records.batch import read_header

Handler = Callable[[Any], Awaitable[Any]]


def machine() -> Machine:
    """The simulated process's, or the real one."""
    process = PROCESS.get(None)
    return OS if process is None else process.machine


class Broker:
    """One broker.

    Attributes:
        image: what it has followed.
        handler: answers the other brokers' requests.
        watchers: called after each image.
        deaf: it follows nothing, as while its connection to the controller is cut.
    """

    def __init__(self, brokers: "Brokers", node_id: int, **properties: str) -> None:
        self.node_id = node_id
        self.config = BrokerConfig.from_properties({"node.id": str(node_id), **properties})
        numbers = itertools.count(1000 * node_id)
        store = LogStore(SimFiles(), node_id=node_id, new_ids=lambda: UUID(int=next(numbers)))
        self.flusher = Flusher()
        self.replicas = ReplicaManager(self.config, store, self.flusher, FairScheduler(machine()), machine())
        self.image = ClusterImage()
        self.watchers: list[Callable[[], None]] = []
        self.handler: Handler | None = None
        self.deaf = False
        self.position = 0
        self.channels = Channels(brokers, self)

    async def follow(self, image: ClusterImage, delta: Delta) -> None:
        await self.replicas.local.follow(image, delta)
        self.image = image
        for watch in self.watchers:
            watch()

    async def close(self) -> None:
        await self.replicas.close()
        await self.replicas.local.close()
        await self.flusher.drain()
        self.flusher.close()


class Channels:
    """A `BrokerChannels` to the other brokers; `sent` has what went through."""

    def __init__(self, brokers: "Brokers", sender: Broker) -> None:
        self._brokers = brokers
        self._sender = sender
        self.sent: list[tuple[int, Any]] = []

    async def send(self, node_id: int, request: Any, *, purpose: str = "", timeout_ms: int) -> Any:
        assert node_id != self._sender.node_id, "a broker needs no connection to itself"
        self.sent.append((node_id, request))
        await asyncio.sleep(0)
        if node_id in self._brokers.unreachable:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} refuses connections")
        if node_id in self._brokers.hung:
            await asyncio.get_running_loop().create_future()
        handler = self._brokers[node_id].handler
        assert handler is not None
        response = await handler(request)
        if node_id in self._brokers.mute:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"the connection to broker {node_id} ended")
        return response


class Brokers:
    """Brokers 1 to `count` under one image.

    Attributes:
        unreachable: they refuse connections.
        mute: they carry requests out, and their responses are lost.
        hung: they accept requests and do not answer.
        slow: topics whose followers do not fetch.
    """

    def __init__(self, count: int = 3, **properties: str) -> None:
        self.unreachable: set[int] = set()
        self.mute: set[int] = set()
        self.hung: set[int] = set()
        self.slow: set[str] = set()
        self._brokers = {node_id: Broker(self, node_id, **properties) for node_id in range(1, count + 1)}
        self.image = ClusterImage()
        self._records: list[Any] = []
        self._ids = itertools.count(0x77)

    def __getitem__(self, node_id: int) -> Broker:
        return self._brokers[node_id]

    def __iter__(self) -> Iterator[Broker]:
        return iter(self._brokers.values())

    async def apply(self, *records: Any) -> None:
        """Publish one change to every broker that listens; one that was deaf follows all it missed as one change."""
        self._records += records
        self.image = _after(self.image, records)[0]
        for broker in self:
            if not broker.deaf:
                behind, broker.position = self._records[broker.position :], len(self._records)
                await broker.follow(*_after(broker.image, behind))

    async def register(self) -> None:
        await self.apply(
            *(
                RegisterBrokerRecord(
                    broker_id=broker.node_id,
                    incarnation_id=UUID(int=broker.node_id),
                    broker_epoch=broker.node_id,
                    end_points=[BrokerEndpoint(name="PLAINTEXT", host="b", port=9092, security_protocol=0)],
                    features=[],
                    rack=None,
                    fenced=False,
                )
                for broker in self
            )
        )

    async def create(self, topic: str, leaders: list[int]) -> TopicImage:
        """Create a topic on all brokers, each partition with its leader."""
        if not self.image.brokers:
            await self.register()
        topic_id = UUID(int=next(self._ids))
        replicas = sorted(self._brokers)
        await self.apply(
            TopicRecord(name=topic, topic_id=topic_id),
            *(
                PartitionRecord(
                    partition_id=partition,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[UNASSIGNED] * len(replicas),
                )
                for partition, leader in enumerate(leaders)
            ),
        )
        return self.image.topics[topic]

    async def lead(self, topic: str, partition: int, leader: int) -> None:
        """Move a partition's leadership."""
        topic_id = self.image.topics[topic].topic_id
        await self.apply(PartitionChangeRecord(partition_id=partition, topic_id=topic_id, leader=leader))

    async def delete(self, topic: str) -> None:
        await self.apply(RemoveTopicRecord(topic_id=self.image.topics[topic].topic_id))

    # Replication

    def partition(self, node_id: int, topic: str, partition: int) -> Partition:
        return self[node_id].replicas.find(topic, partition)

    async def replicate(self, topic: str, partition: int = 0, *, only: int | None = None) -> None:
        """Copy what followers lack of the leader's log, and commit what all have.

        `only`: the follower that fetches.
        """
        leader_id = self.image.topics[topic].partitions[partition].leader
        if leader_id not in self._brokers:
            return
        leader = self.partition(leader_id, topic, partition)
        for broker in self:
            if broker.node_id == leader_id or only not in {None, broker.node_id}:
                continue
            follower = broker.replicas.find(topic, partition)
            if leader.state.role is not Role.LEADER or follower.state.role is not Role.FOLLOWER:
                continue
            _copy(leader, follower)
            await until(partial(_is_flushed, leader), pause_s=0.001)
            if leader.state.role is Role.LEADER:
                leader._carry_out(leader.state.fetched(broker.node_id, follower.log.end_offset, 0))

    @asynccontextmanager
    async def replicating(self) -> AsyncIterator[None]:
        """Keep all followers in sync meanwhile."""

        async def replicate() -> None:
            while True:
                for topic in self.image.topics.values():
                    for partition in range(0 if topic.name in self.slow else len(topic.partitions)):
                        with contextlib.suppress(KafkaError):  # a broker has not opened it yet
                            await self.replicate(topic.name, partition)
                await asyncio.sleep(0.001)

        task = asyncio.ensure_future(replicate())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def close(self) -> None:
        for broker in self:
            await broker.close()


def _is_flushed(partition: Partition) -> bool:
    return partition.log.flushed_offset >= partition.log.end_offset


def _copy(leader: Partition, follower: Partition) -> None:
    """Make a follower's log the leader's: cut what differs, append the rest."""
    shared = 0
    for own, leading in zip(follower.log.batches(), leader.log.batches(), strict=False):
        if bytes(own) != bytes(leading):
            break
        shared = read_header(own).last_offset + 1
    if shared < follower.log.end_offset:
        follower.log.producers = follower.log.cut(shared, 0).in_place_of(follower.log.producers)
        follower.truncated()
    for batch in leader.log.batches(follower.log.end_offset):
        follower.appended(follower.log.append_as_follower(batch, now_ms=0))
    follower.log.flushed(follower.log.flush_point())
    follower.flushed(None)


def _after(image: ClusterImage, records: Iterable[Any]) -> tuple[ClusterImage, Delta]:
    delta = Delta(image)
    for record in records:
        delta.apply(record)
    return delta.image(), delta


async def turn() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)
