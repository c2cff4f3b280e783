"""Nodes that stop, are killed, return and are unregistered, in a cluster of three real ones whose sessions would last a minute."""

import asyncio

import pytest
from tests.integration.test_three_nodes import asked, created, creation
from tests.support.variants import with_variants
from tests.support.waiting import until

from busway import Consumer, Producer
from busway_bus.metadata.image import BrokerImage, PartitionImage
from busway_bus.testing.local_nodes import LocalNodes
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.brokers import UnregisterBrokerRequest, UnregisterBrokerResponse

pytestmark = pytest.mark.slow

NO_SESSION_ENDS = {"broker.session.timeout.ms": "60000"}
"""So that a test fails that waits for the end of one."""


def partitions(nodes: LocalNodes, topic: str, node_id: int) -> tuple[PartitionImage, ...]:
    """A topic's partitions, as a node knows them; none before it knows the topic."""
    image = nodes.nodes[node_id].services.image.topics.get(topic)
    return () if image is None else image.partitions


async def all_in_sync(nodes: LocalNodes, topic: str, of: int) -> None:
    """Wait until every replica of a topic is in sync, as a node knows."""

    def in_sync() -> bool:
        known_partitions = partitions(nodes, topic, of)
        return bool(known_partitions) and all(len(partition.isr) == 3 for partition in known_partitions)

    await until(in_sync)


def known(nodes: LocalNodes, node_id: int, of: int) -> BrokerImage | None:
    """A broker, as another node knows it."""
    return nodes.nodes[of].services.image.brokers.get(node_id)


async def unregistered(nodes: LocalNodes, node_id: int, at: int) -> ErrorCode:
    """Unregister a broker at a node."""
    answer = await asked(nodes, at, UnregisterBrokerRequest(broker_id=node_id))
    assert isinstance(answer, UnregisterBrokerResponse)
    return ErrorCode(answer.error_code)


@pytest.mark.parametrize("node_id", with_variants([1, 2, 3], gate=[1]))
async def test_a_node_that_stops_hands_over_what_it_leads(node_id: int) -> None:
    """Whether it is the active controller or not. It registers again without waiting for its own session's end."""
    async with LocalNodes(properties=NO_SESSION_ENDS) as nodes:
        assert await created(nodes, 1, creation("t", partitions=6)) == ErrorCode.NONE
        other = node_id % 3 + 1
        await all_in_sync(nodes, "t", other)
        epoch = nodes.nodes[node_id].services.image.brokers[node_id].epoch
        async with Producer(nodes.bootstrap_servers) as producer:
            for number in range(12):
                await producer.send_and_wait("t", b"before", partition=number % 6)
            await nodes.shut_down(node_id)
            for number in range(12):
                await producer.send_and_wait("t", b"after", partition=number % 6)
        stopped = known(nodes, node_id, other)
        assert stopped is not None
        assert (stopped.fenced, stopped.in_controlled_shutdown) == (True, True)
        assert all(node_id not in {partition.leader, *partition.isr} for partition in partitions(nodes, "t", other))
        await nodes.restart(node_id)
        await all_in_sync(nodes, "t", other)
        returned = known(nodes, node_id, other)
        assert returned is not None
        assert returned.active
        assert returned.epoch > epoch


async def test_a_dead_broker_is_unregistered_and_may_return() -> None:
    """At a node that forwards and at one that decides; every node knows."""
    async with LocalNodes(properties=NO_SESSION_ENDS) as nodes:
        assert await created(nodes, 1, creation("t")) == ErrorCode.NONE
        await nodes.kill(3)
        assert await unregistered(nodes, 3, at=1) is ErrorCode.NONE
        assert await unregistered(nodes, 3, at=2) is ErrorCode.BROKER_ID_NOT_REGISTERED
        await until(lambda: all(known(nodes, 3, of) is None for of in (1, 2)))
        for partition in partitions(nodes, "t", 1):
            assert 3 not in {partition.leader, *partition.isr, *partition.elr}
            assert 3 in partition.replicas
        await nodes.restart(3)
        await all_in_sync(nodes, "t", 1)


@pytest.mark.parametrize("lost", with_variants([1, 2, 3], gate=[1]))
async def test_two_of_three_killed_nodes_have_everything(lost: int) -> None:
    """All are killed and one never returns: the others have flushed every acknowledged record, and may lead (KIP-966)."""
    async with LocalNodes() as nodes:
        assert await created(nodes, 1, creation("t")) == ErrorCode.NONE
        await all_in_sync(nodes, "t", 1)
        async with Producer(nodes.bootstrap_servers) as producer:
            for number in range(30):
                await producer.send_and_wait("t", str(number).encode(), partition=number % 3)
        await nodes.crash()
        back = [node_id for node_id in (1, 2, 3) if node_id != lost]
        await asyncio.gather(*(nodes.restart(node_id) for node_id in back))
        await until(lambda: all(set(partition.isr) == set(back) for partition in partitions(nodes, "t", back[0])))
        async with Producer(nodes.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"after", partition=0)
        async with Consumer("t", bootstrap_servers=nodes.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            values = {(await consumer.getone()).value for _ in range(31)}
        assert values == {b"after", *(str(number).encode() for number in range(30))}
