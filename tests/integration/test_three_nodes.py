"""Three nodes of both roles on real sockets: one cluster."""

import pytest
from tests.support.patience import patient_ms
from tests.support.waiting import until

from busway import Consumer, Producer
from busway.net.connection import Connection
from busway_bus.metadata.image import ClusterImage
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
