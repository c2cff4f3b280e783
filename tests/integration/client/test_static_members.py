"""Static members (KIP-345) that are killed and come back to their place without a rebalance: no partition stays without an owner for good."""

import asyncio
from collections.abc import Iterable

import pytest

import busway
from busway.admin.admin import Admin
from busway.admin.new_topic import NewTopic
from busway.types import TopicPartition
from busway_bus.testing.world import SimNode, SimProcess, World

pytestmark = pytest.mark.slow

SETTLED_S = 120.0
"""Virtual time in which a group must have shared everything: more than two sessions."""
LOOKED_S = 20.0
"""How often members look for new partitions of their topics."""


class Group:
    """The members of a group, each in a process of its own, and what each reads."""

    def __init__(self, world: World, node: SimNode) -> None:
        self._world = world
        self._node = node
        self.reads: dict[str, frozenset[TopicPartition]] = {}
        self.processes: dict[str, SimProcess] = {}
        self.dies_giving_up: set[str] = set()
        """These are killed when they have to give partitions up, before they do."""

    def start(self, name: str, topic: str) -> None:
        """A member whose instance id is its name."""
        process = self.processes[name] = self._world.process(name)
        process.start(self._live, name, topic).add_done_callback(lambda future: future.exception())

    def kill(self, name: str) -> None:
        """As SIGKILL does."""
        self.processes[name].crash()
        self.reads.pop(name, None)

    async def _live(self, name: str, topic: str) -> None:
        async with busway.Consumer(
            topic,
            bootstrap_servers=self._node.bootstrap_servers,
            client_id=name,
            metadata_max_age_ms=int(LOOKED_S * 1000),
            group_id="g",
            group_instance_id=name,
            partition_assignment_strategy=["cooperative-sticky"],
            listener=_Listener(self, name),
        ) as consumer:
            while True:
                await consumer.getmany(timeout_ms=1_000)
                self.reads[name] = consumer.assignment()

    async def until_killed(self, name: str) -> None:
        """Return when it does not live any more."""
        while self.processes[name].alive:
            await asyncio.sleep(0.01)

    async def until_shared(self, *wanted: Iterable[TopicPartition]) -> None:
        """Return when these partitions, no more and no fewer, are read, each by one member."""
        async with asyncio.timeout(SETTLED_S):
            while sorted(partition for reads in self.reads.values() for partition in reads) != sorted(
                partition for partitions in wanted for partition in partitions
            ):
                await asyncio.sleep(0.1)


class _Listener(busway.RebalanceListener):
    def __init__(self, group: Group, name: str) -> None:
        self._group = group
        self._name = name

    async def on_partitions_revoked(self, revoked: tuple[TopicPartition, ...]) -> None:
        if self._name in self._group.dies_giving_up:
            self._group.dies_giving_up.discard(self._name)
            self._group.kill(self._name)


def partitions(topic: str, count: int) -> list[TopicPartition]:
    """All of a topic."""
    return [TopicPartition(topic, number) for number in range(count)]


async def begin(world: World, **topics: int) -> tuple[Admin, Group]:
    """A broker with topics of so many partitions, and a group without members."""
    node = world.node("broker")
    await node.start()
    admin = Admin(node.bootstrap_servers)
    await admin.start()
    for name, count in topics.items():
        await admin.create_topics([NewTopic(name, count)])
    return admin, Group(world, node)


def test_what_a_leader_was_giving_up_when_it_was_killed_is_shared_when_it_is_back() -> None:
    """It does not have to give up again what is not in its share any more, and its group does not rebalance for it."""

    async def workload(world: World) -> None:
        admin, group = await begin(world, t=4)
        group.start("a", "t")
        await group.until_shared(partitions("t", 4))
        group.dies_giving_up.add("a")
        group.start("b", "t")
        await group.until_killed("a")
        group.start("a", "t")
        await group.until_shared(partitions("t", 4))
        assert len(group.reads["a"]) == len(group.reads["b"]) == 2
        await admin.stop()

    World(1).run(workload)


def test_what_another_member_was_giving_up_when_it_was_killed_is_shared_by_the_leader() -> None:
    """The leader held it back from its new owner, and looks whether it was given up."""

    async def workload(world: World) -> None:
        admin, group = await begin(world, leads=1, t=2)
        group.start("leader", "leads")
        await group.until_shared(partitions("leads", 1))
        group.start("a", "t")
        await group.until_shared(partitions("leads", 1), partitions("t", 2))
        group.dies_giving_up.add("a")
        group.start("b", "t")
        await group.until_killed("a")
        group.start("a", "t")
        await group.until_shared(partitions("leads", 1), partitions("t", 2))
        await admin.stop()

    World(1).run(workload)


def test_partitions_that_came_while_a_leader_was_away_are_shared_when_it_is_back() -> None:
    """It keeps its assignment as it was (KIP-814), without those that were unknown then."""

    async def workload(world: World) -> None:
        admin, group = await begin(world, t=1)
        group.start("a", "t")
        await group.until_shared(partitions("t", 1))
        group.kill("a")
        await admin.create_partitions({"t": 3})
        group.start("a", "t")
        await group.until_shared(partitions("t", 3))
        await admin.stop()

    World(1).run(workload)


def test_partitions_that_come_after_a_leader_is_back_are_shared() -> None:
    """It watches its group's topics as any leader does."""

    async def workload(world: World) -> None:
        admin, group = await begin(world, t=1)
        group.start("a", "t")
        await group.until_shared(partitions("t", 1))
        group.kill("a")
        group.start("a", "t")
        await group.until_shared(partitions("t", 1))
        await world.sleep(SETTLED_S)
        await admin.create_partitions({"t": 3})
        await group.until_shared(partitions("t", 3))
        await admin.stop()

    World(1).run(workload)
