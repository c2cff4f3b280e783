"""Channels to the active controller and to other brokers, over the simulated network."""

import asyncio
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import pytest

from busway.net.probing import is_refused
from busway_bus.metadata.image import Address, BrokerImage, ClusterImage
from busway_bus.nodes.channels import ActiveController, BrokerConnections
from busway_bus.testing.world import SimNode, World
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.brokers import UnregisterBrokerRequest, UnregisterBrokerResponse
from busway_protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse

PORT = 9092
QUESTION = DescribeClusterRequest(include_cluster_authorized_operations=False)


async def nodes(world: World, *names: str) -> list[SimNode]:
    """Single brokers, which answer requests."""
    made = [world.node(name) for name in names]
    for node in made:
        await node.start()
    return made


def run(workload: Callable[[World], Any]) -> None:
    World(seed=1).run(workload)


def test_a_request_finds_the_controller_again() -> None:
    """It waits while there is none, and goes to the next where the first one is gone or does not lead any more."""

    async def workload(world: World) -> None:
        first, _ = await nodes(world, "a", "b")
        leader = -1
        channel = ActiveController(
            9, {1: ("a", PORT), 2: ("b", PORT)}, lambda: leader, timeout_ms=5_000, retry_ms=20_000
        )
        request = asyncio.ensure_future(channel.send(QUESTION))
        await world.sleep(3)
        assert not request.done()
        leader = 1
        answer: DescribeClusterResponse = await request
        assert answer.brokers[0].host == "a"
        first.crash()
        request = asyncio.ensure_future(channel.send(QUESTION))
        await world.sleep(1)
        assert not request.done()
        leader = 2
        assert (await request).brokers[0].host == "b"
        channel.close()
        with pytest.raises(KafkaError, match="this node stops"):
            await channel.send(QUESTION)

    run(workload)


def test_a_response_of_one_that_does_not_lead_is_no_response() -> None:
    """The request is sent again until one that leads answers, or time is over."""

    async def workload(world: World) -> None:
        asked: list[float] = []

        class Line:
            async def request(self, message: Any, **_: Any) -> UnregisterBrokerResponse:
                asked.append(world.now)
                code = ErrorCode.NOT_CONTROLLER if len(asked) < 4 else ErrorCode.NONE
                return UnregisterBrokerResponse(error_code=code, error_message=None)

        class Connected:
            open = None

            async def connected(self) -> Line:
                return Line()

        channel = ActiveController(9, {1: ("a", PORT)}, lambda: 1, timeout_ms=1_000, retry_ms=10_000)
        cast("Any", channel)._current = Connected
        times_sent: list[float] = []
        request = UnregisterBrokerRequest(broker_id=5)
        answer = await channel.send(request, sending=lambda: times_sent.append(world.now))
        assert (answer.error_code, len(asked)) == (ErrorCode.NONE, 4)
        assert times_sent == asked
        refusing = ActiveController(9, {}, lambda: -1, timeout_ms=1_000, retry_ms=2_000)
        begun = world.now
        with pytest.raises(KafkaError, match="no active controller answered within 2 s") as problem:
            await refusing.send(UnregisterBrokerRequest(broker_id=5))
        assert problem.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert 2 <= world.now - begun < 2.1

    run(workload)


def image_of(**hosts: str) -> ClusterImage:
    """Unfenced brokers, by name: `b1="host"`."""
    brokers = {
        int(name[1:]): BrokerImage(
            node_id=int(name[1:]),
            epoch=7,
            incarnation=UUID(int=1),
            addresses={"PLAINTEXT": Address(host=host, port=PORT)},
            rack=None,
            fenced=False,
            directories=(),
            features={},
        )
        for name, host in hosts.items()
    }
    return ClusterImage(brokers=ClusterImage().brokers.updated(brokers))


def test_a_broker_that_cannot_be_reached_has_not_got_the_request() -> None:
    """BROKER_NOT_AVAILABLE says so; after NETWORK_EXCEPTION the outcome is unknown."""

    async def workload(world: World) -> None:
        first, _ = await nodes(world, "a", "b")
        image = image_of(b1="a", b3="nowhere")
        channels = BrokerConnections(9, "PLAINTEXT", lambda: image, connect_ms=1_000)

        async def code(node_id: int, timeout_ms: int = 5_000) -> ErrorCode:
            try:
                await channels.send(node_id, QUESTION, timeout_ms=timeout_ms)
            except KafkaError as problem:
                return problem.code
            return ErrorCode.NONE

        assert await code(1) is ErrorCode.NONE
        assert await code(2) is ErrorCode.BROKER_NOT_AVAILABLE
        assert await code(3) is ErrorCode.BROKER_NOT_AVAILABLE
        image = image_of(b1="b")
        answer = await channels.send(1, QUESTION, timeout_ms=5_000)
        assert answer.brokers[0].host == "b"
        image = image_of(b1="a")
        assert await code(1) is ErrorCode.NONE
        first.freeze()
        assert await code(1, timeout_ms=500) is ErrorCode.NETWORK_EXCEPTION
        first.thaw()
        assert await code(1) is ErrorCode.NONE
        first.crash()
        assert await code(1) in {ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE}
        assert await code(1) is ErrorCode.BROKER_NOT_AVAILABLE
        channels.close()
        assert await code(1) is ErrorCode.BROKER_NOT_AVAILABLE

    run(workload)


@pytest.mark.parametrize("pauses", range(4))
def test_a_cancelled_request_ends_although_its_connection_is_closed_while_it_opens(pauses: int) -> None:
    """The stop of a node closes its channels, then cancels the tasks that send: none may go on."""

    async def workload(world: World) -> None:
        (node,) = await nodes(world, "a")
        node.freeze()
        image = image_of(b1="a")
        channel = ActiveController(9, {1: ("a", PORT)}, lambda: 1, timeout_ms=30_000, retry_ms=60_000)
        brokers = BrokerConnections(9, "PLAINTEXT", lambda: image, connect_ms=30_000)
        requests = [
            asyncio.ensure_future(channel.send(QUESTION)),
            asyncio.ensure_future(brokers.send(1, QUESTION, timeout_ms=30_000)),
        ]
        await world.sleep(1)
        channel.close()
        brokers.close()
        for _ in range(pauses):
            await asyncio.sleep(0)
        pending = [request for request in requests if not request.done()]
        for request in pending:
            request.cancel()
        await asyncio.wait(requests)
        assert all(request.cancelled() for request in pending)

    run(workload)


def test_a_probe_tells_a_dead_process_from_a_cut_network() -> None:
    """Only a closed port shows that no process listens."""

    async def workload(world: World) -> None:
        (node,) = await nodes(world, "a")
        client = world.process("c")
        assert not await client.run(is_refused, "a", PORT, 0.5)
        node.freeze()
        assert not await client.run(is_refused, "a", PORT, 0.5)
        node.thaw()
        world.network.silence("a", "c")
        assert not await client.run(is_refused, "a", PORT, 0.5)
        world.network.heal()
        node.crash()
        assert await client.run(is_refused, "a", PORT, 0.5)
        node.power_cut()
        assert not await client.run(is_refused, "a", PORT, 0.5)

    run(workload)


def test_a_lost_node_is_not_explained_by_settings_of_clients() -> None:
    """Its process was killed while it had the first request: nodes have no security_protocol to set."""

    async def workload(world: World) -> None:
        (node,) = await nodes(world, "a")
        channels = BrokerConnections(9, "PLAINTEXT", lambda: image_of(b1="a"), connect_ms=1_000)
        await channels._line(1, "").connected()
        node.freeze()
        request = asyncio.ensure_future(channels.send(1, QUESTION, timeout_ms=5_000))
        await world.sleep(0.1)
        node.crash()
        with pytest.raises(KafkaError) as lost:
            await request
        assert "the connection to a:9092 ended" in str(lost.value)
        assert "SASL" not in str(lost.value)
        channels.close()

    run(workload)
