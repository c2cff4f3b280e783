"""Brokers of three controllers over the simulated network: registered, unfenced, fenced, and known to the next leader."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from busway_bus.metadata.features import SUPPORTED
from busway_bus.metadata.image import BrokerImage
from busway_bus.testing.simulated_nodes import CLUSTER_ID, CONTROLLER_PORT
from busway_bus.testing.world import SimProcess, World
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    RegisteredFeature,
    RegisteredListener,
    UnregisterBrokerRequest,
)
from tests.simulation.quorum.nodes import SimController, asked, carried_out, controllers, leader_of

SESSION_S = 2.0


class Broker:
    """One run of a broker's process, as far as its controllers see it: its host is down, so that no probe is answered."""

    def __init__(self, process: SimProcess, node_id: int, run: int = 1) -> None:
        self._process, self._node_id, self._incarnation = process, node_id, UUID(int=run)
        self.epoch = -1

    async def register(self, controller: SimController, **fields: Any) -> ErrorCode:
        request = BrokerRegistrationRequest(
            broker_id=self._node_id,
            incarnation_id=self._incarnation,
            listeners=[RegisteredListener(name="PLAINTEXT", host="elsewhere", port=9_092, security_protocol=0)],
            features=[
                RegisteredFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED.items()
            ],
            rack=None,
            log_dirs=[UUID(int=1_000 + self._node_id)],
            **{"cluster_id": CLUSTER_ID, **fields},
        )
        answer: BrokerRegistrationResponse = await self._ask(controller, request)
        self.epoch = answer.broker_epoch
        return ErrorCode(answer.error_code)

    async def beat(self, controller: SimController, offset: int, **fields: Any) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=offset,
            **{"want_fence": False, "want_shut_down": False, **fields},
        )
        answer: BrokerHeartbeatResponse = await self._ask(controller, request)
        return answer

    async def unregister(self, controller: SimController) -> ErrorCode:
        answer = await self._ask(controller, UnregisterBrokerRequest(broker_id=self._node_id))
        return ErrorCode(answer.error_code)

    async def _ask(self, controller: SimController, request: Any) -> Any:
        return await self._process.run(asked, f"{controller.name}:{CONTROLLER_PORT}", request)


def broker_at(controller: SimController, node_id: int) -> BrokerImage | None:
    return controller.metadata.image.brokers.get(node_id)


async def formatted(world: World) -> tuple[list[SimController], SimController]:
    """Controllers with a leader that has finalized the features of the cluster."""
    world.host("elsewhere").up = False
    nodes = controllers(world, broker_session_timeout_ms=int(SESSION_S * 1000))
    for node in nodes:
        await node.start()
    async with asyncio.timeout(15):
        while not any(node.leads and node.metadata.image.features for node in nodes):
            await world.sleep(0.05)
    return nodes, await leader_of(world, nodes)


@pytest.mark.slow
def test_a_broker_outlives_its_controller() -> None:
    """The next leader knows its epoch, gives it a whole session, and fences it when it is silent."""

    async def workload(world: World) -> None:
        nodes, leader = await formatted(world)
        broker = Broker(world.process("b"), 7)
        other = next(node for node in nodes if node is not leader)
        assert await broker.register(other) is ErrorCode.NOT_CONTROLLER
        assert await broker.register(leader, cluster_id="x") is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert await broker.register(leader) is ErrorCode.NONE
        answer = await broker.beat(leader, broker.epoch - 1)
        assert (answer.is_caught_up, answer.is_fenced) == (False, True)
        answer = await broker.beat(leader, broker.epoch)
        assert (answer.is_caught_up, answer.is_fenced) == (True, False)
        assert (await broker.beat(other, broker.epoch)).error_code == ErrorCode.NOT_CONTROLLER
        assert await Broker(world.process("b"), 7, run=2).register(leader) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        leader.crash()
        leader = await carried_out(world, nodes, "elected")
        for _ in range(5):
            assert not (await broker.beat(leader, broker.epoch)).is_fenced
            await world.sleep(SESSION_S / 2)
            assert (known := broker_at(leader, 7))
            assert (known.fenced, known.epoch) == (False, broker.epoch)
        async with asyncio.timeout(SESSION_S):
            while (known := broker_at(leader, 7)) is None or not known.fenced:
                await world.sleep(SESSION_S / 8)
        assert known.epoch == broker.epoch
        assert not (await broker.beat(leader, broker.epoch)).is_fenced

    World(seed=3).run(workload)


@pytest.mark.slow
def test_a_broker_stops_and_is_unregistered() -> None:
    """All controllers know; it may stop at once as it leads nothing, restart at once, and leave the cluster."""

    async def workload(world: World) -> None:
        nodes, leader = await formatted(world)
        broker = Broker(world.process("b"), 7)
        assert await broker.register(leader) is ErrorCode.NONE
        await broker.beat(leader, broker.epoch)
        answer = await broker.beat(leader, broker.epoch, want_shut_down=True)
        assert (answer.should_shut_down, answer.is_fenced) == (True, True)
        restarted = Broker(world.process("b"), 7, run=2)
        assert await restarted.register(leader) is ErrorCode.NONE
        assert restarted.epoch > broker.epoch
        assert (await broker.beat(leader, broker.epoch)).error_code == ErrorCode.STALE_BROKER_EPOCH
        async with asyncio.timeout(10):
            while not all((known := broker_at(node, 7)) and known.epoch == restarted.epoch for node in nodes):
                await world.sleep(0.05)
        assert await restarted.unregister(leader) is ErrorCode.NONE
        assert await restarted.unregister(leader) is ErrorCode.BROKER_ID_NOT_REGISTERED
        async with asyncio.timeout(10):
            while any(broker_at(node, 7) for node in nodes):
                await world.sleep(0.05)

    World(seed=4).run(workload)
