"""Three nodes of both roles on real sockets: one cluster."""

import asyncio
from pathlib import Path

import pytest
from tests.support.patience import patient_ms
from tests.support.waiting import until

from busway import Consumer, Producer
from busway.net.connection import Connection
from busway_bus.log.checkpoints import CLEAN_SHUTDOWN
from busway_bus.metadata.image import ClusterImage
from busway_bus.node import Node
from busway_bus.nodes.lifecycle import CannotRegister
from busway_bus.testing.local_nodes import LocalNodes
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

pytestmark = pytest.mark.slow


def creation(name: str, *, partitions: int = 3, replicas: int = 3) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic])


async def asked(nodes: LocalNodes, node_id: int, request: object) -> object:
    """Send a request to one node's broker."""
    host, _, port = nodes.nodes[node_id].bootstrap_servers.rpartition(":")
    connection = Connection(host, int(port), client_id="test", timeout_s=patient_ms(10_000) / 1000)
    await connection.connect()
    try:
        return await connection.request(request)
    finally:
        connection.close()


async def created(nodes: LocalNodes, node_id: int, request: CreateTopicsRequest) -> int:
    """Create a topic at one node; return the error code."""
    answer = await asked(nodes, node_id, request)
    assert isinstance(answer, CreateTopicsResponse)
    return answer.topics[0].error_code


def images(nodes: LocalNodes) -> list[ClusterImage]:
    return [node.services.image for node in nodes.nodes.values()]


def leaders(nodes: LocalNodes) -> list[int]:
    """The leaders of the partitions of `t`, as each node knows them."""
    return [partition.leader for image in images(nodes) for partition in image.topics["t"].partitions]


def isrs(nodes: LocalNodes) -> list[set[int]]:
    return [set(partition.isr) for image in images(nodes) for partition in image.topics["t"].partitions]


async def test_topics_are_created_at_any_node_and_known_to_all() -> None:
    """A node that does not lead forwards; all follow the same metadata."""
    async with LocalNodes() as nodes:
        for node_id in nodes.nodes:
            assert await created(nodes, node_id, creation(f"t{node_id}")) == ErrorCode.NONE
            assert await created(nodes, node_id, creation(f"t{node_id}")) == ErrorCode.TOPIC_ALREADY_EXISTS
        await until(lambda: all(set(image.topics) == {"t1", "t2", "t3"} for image in images(nodes)))
        first, *others = images(nodes)
        assert all(image == first for image in others)
        assert {broker.node_id for broker in first.usable_brokers()} == {1, 2, 3}


async def test_nodes_are_restarted_one_after_the_other_under_load() -> None:
    """Each hands its leaderships over first: a client sees no error, and nothing is lost."""
    async with LocalNodes() as nodes:
        assert await created(nodes, 1, creation("t")) == ErrorCode.NONE
        over, sent = asyncio.Event(), 0

        async def write() -> None:
            nonlocal sent
            async with Producer(nodes.bootstrap_servers) as producer:
                while not over.is_set():
                    await producer.send_and_wait("t", str(sent).encode(), partition=sent % 3)
                    sent += 1

        writer = asyncio.ensure_future(write())
        for node_id in (1, 2, 3):
            await nodes.shut_down(node_id)
            await until(lambda: all(leader in nodes.nodes for leader in leaders(nodes)))
            await nodes.restart(node_id)
            await until(lambda: all(in_sync == {1, 2, 3} for in_sync in isrs(nodes)))
        over.set()
        await writer
        async with Consumer("t", bootstrap_servers=nodes.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            values = [int((await consumer.getone()).value) for _ in range(sent)]
        assert sorted(values) == list(range(sent))


async def test_all_nodes_are_stopped_together() -> None:
    """No node is left to hand over to; each leaves its data for a clean start."""
    async with LocalNodes() as nodes:
        assert await created(nodes, 1, creation("t")) == ErrorCode.NONE
        async with Producer(nodes.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"x", partition=0)
        await asyncio.gather(*(nodes.shut_down(node_id) for node_id in (1, 2, 3)))
        for node_id in (1, 2, 3):
            assert Path(nodes.folder, f"node-{node_id}", CLEAN_SHUTDOWN).exists()
        await asyncio.gather(*(nodes.restart(node_id) for node_id in (1, 2, 3)))
        async with Consumer("t", bootstrap_servers=nodes.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            assert (await consumer.getone()).value == b"x"


@pytest.mark.parametrize("led", [True, False])
async def test_a_node_of_another_cluster_does_not_start(led: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The text has the reason, also where the node was the leader of the quorum. It does not ask itself to register it."""
    async with LocalNodes() as nodes:
        leader = nodes.nodes[1].services.controller.leader_id
        changed = leader if led else leader % 3 + 1
        await nodes.shut_down(changed)
        properties = Path(nodes.folder, f"node-{changed}", "meta.properties")
        text = properties.read_text()
        own = next(line for line in text.splitlines() if line.startswith("cluster.id="))
        properties.write_text(text.replace(own, "cluster.id=AAAAAAAAAAAAAAAAAAAAAA"))
        node = Node(nodes._configs[changed])  # `restart` would refuse it first
        with pytest.raises(CannotRegister, match="another cluster"):
            await node.start()
        assert "does not register this broker yet" not in caplog.text


async def test_a_partition_that_cannot_be_opened_is_led_by_another_node() -> None:
    """Its broker reports it; once it can be opened it is in sync again."""
    async with LocalNodes() as nodes:
        assert await created(nodes, 1, creation("t", partitions=1)) == ErrorCode.NONE
        async with Producer(nodes.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"x")
            await nodes.shut_down(2)
            owner = Path(nodes.folder, "node-2", "t-0", "partition.metadata")
            text = owner.read_text()
            owner.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
            await nodes.restart(2)
            await until(lambda: all(image.topics["t"].partitions[0].lost_on(2) for image in images(nodes)))
            assert all(leader != 2 for leader in leaders(nodes))
            await producer.send_and_wait("t", b"y")
            await nodes.shut_down(2)
            owner.write_text(text)
            await nodes.restart(2)
            await until(lambda: all(in_sync == {1, 2, 3} for in_sync in isrs(nodes)))


async def test_acknowledged_records_outlive_the_leader_of_their_partition() -> None:
    """The two others go on; the killed node comes back and is in sync again."""
    async with LocalNodes() as nodes:
        assert await created(nodes, 1, creation("t", partitions=1)) == ErrorCode.NONE
        async with Producer(nodes.bootstrap_servers) as producer:
            for number in range(100):
                await producer.send_and_wait("t", str(number).encode())
            leader = nodes.nodes[1].services.image.topics["t"].partitions[0].leader
            await nodes.kill(leader)
            for number in range(100, 200):
                await producer.send_and_wait("t", str(number).encode())
        async with Consumer("t", bootstrap_servers=nodes.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            values = [(await consumer.getone()).value for _ in range(200)]
        assert values == [str(number).encode() for number in range(200)]
        await nodes.restart(leader)
        await until(lambda: set(nodes.nodes[leader].services.image.topics["t"].partitions[0].isr) == {1, 2, 3})
