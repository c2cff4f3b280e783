"""One node on two listeners: a client of either gets that listener's address, and the bounds count both."""

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.patience import patient

from busway.net.connection import Connection
from busway_bus.handlers.common.endpoint_types import CONTROLLERS
from busway_bus.handlers.registry import ON_CONTROLLER_LISTENERS
from busway_bus.log.descriptors import Descriptors
from busway_bus.server.listener import CannotListen
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from busway_protocol.compile import encode
from busway_protocol.errors import ErrorCode
from busway_protocol.headers import RequestHeader
from busway_protocol.messages.cluster import ApiVersionsRequest, DescribeClusterRequest
from busway_protocol.messages.groups_classic import FindCoordinatorRequest
from busway_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from busway_protocol.messages.quorum import DescribeQuorumRequest, PartitionQuery, TopicQuery
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("both_streams")]
SECONDS = patient(20.0)
TWO = {
    "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "advertised.listeners": "INSIDE://127.0.0.1:0,OUTSIDE://localhost:0",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
}


def frame_of(request: MetadataRequest) -> bytes:
    """A whole frame, as a client sends it."""
    header = RequestHeader(request_api_key=ApiKey.METADATA, request_api_version=8, correlation_id=1, client_id="test")
    frame = encode(header, 1) + encode(request, 8)
    return len(frame).to_bytes(4) + frame


async def test_each_listener_tells_its_own_address() -> None:
    """In Metadata, DescribeCluster and FindCoordinator, old form and new."""
    async with LocalCluster(properties=TWO) as cluster:
        assert cluster.node is not None
        inside, outside = cluster.node.advertised["INSIDE"], cluster.node.advertised["OUTSIDE"]
        assert (inside.host, outside.host) == ("127.0.0.1", "localhost")
        assert cluster.bootstrap_servers == inside.address
        for listener in (inside, outside):
            here = (listener.host, listener.port)
            connection = Connection("127.0.0.1", listener.port, client_id="test", timeout_s=SECONDS)
            await connection.connect()
            try:
                metadata = await connection.request(MetadataRequest(topics=[]))
                assert [(broker.host, broker.port) for broker in metadata.brokers] == [here]
                described = await connection.request(
                    DescribeClusterRequest(include_cluster_authorized_operations=False)
                )
                assert [(broker.host, broker.port) for broker in described.brokers] == [here]
                many = await connection.request(FindCoordinatorRequest(coordinator_keys=["g"]))
                assert [(coordinator.host, coordinator.port) for coordinator in many.coordinators] == [here]
                coordinator = await connection.request(FindCoordinatorRequest(key="g"), at_most=3)
                assert (coordinator.host, coordinator.port) == here
            finally:
                connection.close()


CONTROLLER = {
    "listeners": "PLAINTEXT://127.0.0.1:0,B://127.0.0.1:0,A://127.0.0.1:0",
    "controller.listener.names": "A,B",
    "advertised.listeners": "PLAINTEXT://127.0.0.1:0,B://localhost:0",
}
METADATA_LOG = TopicQuery(topic_name="__cluster_metadata", partitions=[PartitionQuery(partition_index=0)])


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """A connection to a listener."""
    connection = Connection("127.0.0.1", port, client_id="test", timeout_s=SECONDS)
    await connection.connect()
    try:
        yield connection
    finally:
        connection.close()


async def test_a_controllers_listener_names_the_controller() -> None:
    """With its address on that listener; its APIs are those of a controller, and topics may be created there."""
    async with LocalCluster(properties=CONTROLLER) as cluster:
        assert cluster.node is not None
        assert list(cluster.node.advertised) == ["PLAINTEXT"]
        advertised = cluster.node.services.controller_advertised
        assert [(name, end.host) for name, end in advertised.items()] == [("A", "127.0.0.1"), ("B", "localhost")]
        for listener in advertised.values():
            async with connected(listener.port) as connection:
                ask = DescribeClusterRequest(endpoint_type=CONTROLLERS, include_cluster_authorized_operations=False)
                described = await connection.request(ask)
                (node,) = described.brokers
                assert (described.endpoint_type, described.controller_id) == (CONTROLLERS, 1)
                assert (node.broker_id, node.host, node.port) == (1, listener.host, listener.port)
                served = await connection.request(
                    ApiVersionsRequest(client_software_name="test", client_software_version="1")
                )
                assert {version.api_key for version in served.api_keys} == ON_CONTROLLER_LISTENERS
                topic = CreatableTopic(
                    name=listener.name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
                )
                created = await connection.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
                assert [result.error_code for result in created.topics] == [0]
        assert {"A", "B"} <= set(cluster.node.services.image.topics)
        (registered,) = cluster.node.services.image.brokers.values()
        assert list(registered.addresses) == ["PLAINTEXT"]


async def test_a_restart_opens_all_listeners_again() -> None:
    """The first at its port; those of the controller among them."""
    async with LocalCluster(properties=CONTROLLER) as cluster:
        address = cluster.bootstrap_servers
        await cluster.stop()
        await cluster.start()
        assert cluster.node is not None
        assert cluster.bootstrap_servers == address
        assert list(cluster.node.services.controller_advertised) == ["A", "B"]


async def test_a_controllers_listener_serves_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """Metadata ends the connection, as in Kafka."""
    async with LocalCluster(properties=CONTROLLER) as cluster:
        assert cluster.node is not None
        port = cluster.node.services.controller_advertised["A"].port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame_of(MetadataRequest(topics=[])))
        async with asyncio.timeout(SECONDS):
            assert await reader.read() == b""
        writer.transport.abort()
    assert "API key 3 is not served" in caplog.text


@pytest.mark.parametrize("with_voters", [False, True])
async def test_the_quorum_names_the_controllers_addresses(with_voters: bool) -> None:
    """Those of controller.quorum.voters, where they are set, by the first listener; asked by the listeners of either kind."""
    voters = {"controller.quorum.voters": "1@bus:9093"} if with_voters else {}
    async with LocalCluster(properties={**CONTROLLER, **voters}) as cluster:
        assert cluster.node is not None
        advertised = cluster.node.services.controller_advertised
        expected = [(name, end.host, end.port) for name, end in advertised.items()]
        if with_voters:
            expected = [("A", "bus", 9093)]
        for port in (cluster.node.advertised["PLAINTEXT"].port, advertised["A"].port):
            async with connected(port) as connection:
                described = await connection.request(DescribeQuorumRequest(topics=[METADATA_LOG]))
                (node,) = described.nodes
                assert [(listener.name, listener.host, listener.port) for listener in node.listeners] == expected


async def test_a_broker_without_controller_listeners_says_so() -> None:
    """To a client that wants controllers; the quorum has no address."""
    async with LocalCluster() as cluster:
        assert cluster.node is not None
        async with connected(cluster.node.advertised["PLAINTEXT"].port) as connection:
            ask = DescribeClusterRequest(endpoint_type=CONTROLLERS, include_cluster_authorized_operations=False)
            described = await connection.request(ask)
            assert described.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
            assert "this broker has no listener for controllers, use --bootstrap-server" in described.error_message
            quorum = await connection.request(DescribeQuorumRequest(topics=[METADATA_LOG]))
            assert [node.listeners for node in quorum.nodes] == [[]]


def _both_ways(inside: str, outside: str) -> tuple[str, bytes | None]:
    """librdkafka writes by one listener and reads in a group by the other."""
    admin = AdminClient({"bootstrap.servers": inside})
    admin.create_topics([NewTopic("t", 1)])["t"].result(SECONDS)
    producer = confluent_kafka.Producer({"bootstrap.servers": inside})
    producer.produce("t", value=b"from inside")
    assert producer.flush(SECONDS) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": outside, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe(["t"])
        message = consumer.poll(SECONDS)
        (broker,) = consumer.list_topics(timeout=SECONDS).brokers.values()
        return f"{broker.host}:{broker.port}", None if message is None else message.value()
    finally:
        consumer.close()


async def test_clients_of_both_listeners_share_the_data() -> None:
    """What one writes the other reads, each by its own address."""
    async with LocalCluster(properties=TWO) as cluster:
        assert cluster.node is not None
        inside, outside = (listener.address for listener in cluster.node.advertised.values())
        assert await asyncio.to_thread(_both_ways, inside, outside) == (outside, b"from inside")


async def test_connections_of_all_listeners_count_together() -> None:
    """max.connections is the node's: the only place is taken at the one door, and the other closes on who comes."""
    async with LocalCluster(properties={**TWO, "max.connections": "1"}) as cluster:
        assert cluster.node is not None
        inside, outside = (listener.port for listener in cluster.node.advertised.values())
        first = Connection("127.0.0.1", inside, client_id="test", timeout_s=SECONDS)
        await first.connect()
        reader, writer = await asyncio.open_connection("127.0.0.1", outside)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.transport.abort()
        first.close()


async def test_connections_leave_descriptors_to_the_logs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where fewer files may be open than max.connections says, the limit in force is logged."""
    monkeypatch.setattr(Descriptors, "left", 1)
    async with LocalCluster() as cluster:
        assert cluster.node is not None
        first = Connection("127.0.0.1", cluster.node.advertised["PLAINTEXT"].port, client_id="test", timeout_s=SECONDS)
        await first.connect()
        reader, writer = await asyncio.open_connection("127.0.0.1", cluster.node.advertised["PLAINTEXT"].port)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.transport.abort()
        first.close()
    assert "refused: what the limit of open files allows (1) is reached" in caplog.text


@pytest.mark.parametrize("rounds", range(4))
async def test_who_comes_while_the_node_stops_is_let_go(rounds: int, caplog: pytest.LogCaptureFixture) -> None:
    """At whatever step of being let in: its connection ends, and nothing is made for it on a node that has stopped."""
    async with LocalCluster() as cluster:
        node = cluster.node
        assert node is not None
        ask = MetadataRequest(topics=[MetadataRequestTopic(name="missing")], allow_auto_topic_creation=True)
        with socket.create_connection(("127.0.0.1", node.advertised["PLAINTEXT"].port)) as client:
            client.setblocking(False)
            for _ in range(rounds):
                await asyncio.sleep(0)
            await cluster.stop()
            with contextlib.suppress(ConnectionError):
                client.sendall(frame_of(ask))
                async with asyncio.timeout(SECONDS):
                    assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
        assert "missing" not in node.services.image.topics
        assert not caplog.records


async def test_a_second_listener_that_cannot_be_had_is_named() -> None:
    """With its address and what to do: a port that is taken, a host that does not resolve."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for address, why in (
            (f"127.0.0.1:{port}", "Address already in use; stop what holds the port, or choose another"),
            ("nobody.invalid:0", "the host does not resolve ("),
        ):
            properties = {"listeners": f"INSIDE://127.0.0.1:0,OUTSIDE://{address}", "busway.insecure": "true"}
            with pytest.raises(CannotListen, match=re.escape(f"OUTSIDE cannot listen on {address}: {why}")):
                async with LocalCluster(properties={**TWO, **properties}):
                    pass
