"""A broker's registration, heartbeats and controlled shutdown, against a scripted controller."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from busway.net.machine import current_machine
from busway_bus.controller.brokers import RegisterBroker
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.nodes.lifecycle import BrokerLifecycle, BrokerState, CannotRegister
from busway_bus.testing.world import World
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

HEARTBEAT_MS, SESSION_MS = 2_000, 9_000
REGISTRATION = RegisterBroker(
    node_id=1,
    incarnation=UUID(int=3),
    endpoints=(Endpoint(name="PLAINTEXT", host="b", port=9092),),
    rack="r",
    directories=(UUID(int=200), UUID(int=100)),
    features=(("metadata.version", 7, 30),),
)


class Controller:
    """Answers by functions, and notes every request with its time."""

    def __init__(self, answer: Callable[[Any, int], Any]) -> None:
        self._answer = answer
        self.requests: list[tuple[int, Any]] = []

    async def send(self, request: Any) -> Any:
        self.requests.append((round(asyncio.get_running_loop().time() * 1_000), request))
        answer = self._answer(request, len(self.requests))
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def gaps_ms(self) -> list[int]:
        times = [at for at, _ in self.requests]
        return [after - before for before, after in pairwise(times)]


def lifecycle_of(controller: Controller, offset: Callable[[], int] = lambda: 7) -> BrokerLifecycle:
    return BrokerLifecycle(
        controller,
        REGISTRATION,
        cluster_id="here",
        previous_epoch=5,
        metadata_offset=offset,
        heartbeat_ms=HEARTBEAT_MS,
        session_ms=SESSION_MS,
        registration_ms=60_000,
        machine=current_machine(),
    )


def test_a_registration_is_repeated_until_it_is_accepted() -> None:
    """Pauses grow as Kafka's; the request has all that the controller needs."""

    async def workload(world: World) -> None:
        def answer(request: BrokerRegistrationRequest, count: int) -> Any:
            if count == 1:
                return KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            if count < 4:
                return BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
            return BrokerRegistrationResponse(error_code=0, broker_epoch=12)

        controller = Controller(answer)
        lifecycle = lifecycle_of(controller)
        await lifecycle.register()
        assert lifecycle.epoch == 12
        for gap_ms, about_ms in zip(controller.gaps_ms(), (100, 200, 400), strict=True):
            assert abs(gap_ms - about_ms) <= about_ms * 0.03
        request = controller.requests[-1][1]
        assert (request.broker_id, request.cluster_id, request.incarnation_id) == (1, "here", UUID(int=3))
        assert request.log_dirs == [UUID(int=100), UUID(int=200)]
        assert request.previous_broker_epoch == 5
        assert [(end.name, end.host, end.port) for end in request.listeners] == [("PLAINTEXT", "b", 9092)]

    World(seed=1).run(workload)


@pytest.mark.parametrize(
    ("code", "text", "requests"),
    [
        (ErrorCode.INCONSISTENT_CLUSTER_ID, "another cluster's", 1),
        (ErrorCode.DUPLICATE_BROKER_REGISTRATION, "choose another node.id", 14),
    ],
)
def test_a_broker_that_is_refused_does_not_start(code: ErrorCode, text: str, requests: int) -> None:
    """At once where no retry helps, else after `initial.broker.registration.timeout.ms`."""

    async def workload(world: World) -> None:
        controller = Controller(lambda request, count: BrokerRegistrationResponse(error_code=code))
        with pytest.raises(CannotRegister, match=text):
            await lifecycle_of(controller).register()
        assert abs(len(controller.requests) - requests) <= 1

    World(seed=1).run(workload)


def test_a_broker_is_unfenced_when_it_is_ready() -> None:
    """It has caught up before; then it beats in its interval, and stops when the controller says so."""

    async def workload(world: World) -> None:
        offset = 3
        stops_at = 0.0

        def answer(request: BrokerHeartbeatRequest, count: int) -> BrokerHeartbeatResponse:
            return BrokerHeartbeatResponse(
                error_code=0,
                is_caught_up=request.current_metadata_offset >= 5,
                is_fenced=request.want_fence,
                should_shut_down=request.want_shut_down and world.now >= stops_at,
            )

        controller = Controller(answer)
        lifecycle = lifecycle_of(controller, lambda: offset)
        lifecycle.epoch = 4
        task = asyncio.ensure_future(lifecycle.run())
        await world.sleep(0.1)
        assert lifecycle.state is BrokerState.STARTING
        offset = 5
        await lifecycle.caught_up.wait()
        lifecycle.ready()
        await lifecycle.unfenced.wait()
        assert lifecycle.state is BrokerState.RUNNING
        before = len(controller.requests)
        await world.sleep(11)
        assert len(controller.requests) - before == 5
        stops_at = world.now + 1
        await lifecycle.shut_down(5)
        assert 1 <= world.now - stops_at + 1 < 1.1
        await task
        assert lifecycle.state is BrokerState.SHUTTING_DOWN

    World(seed=1).run(workload)


def test_a_shutdown_without_a_controller_is_given_up() -> None:
    """The broker stops all the same."""

    async def workload(world: World) -> None:
        controller = Controller(lambda request, count: KafkaError(ErrorCode.REQUEST_TIMED_OUT))
        lifecycle = lifecycle_of(controller)
        lifecycle.state = BrokerState.RUNNING
        task = asyncio.ensure_future(lifecycle.run())
        begun = world.now
        await lifecycle.shut_down(3)
        assert world.now - begun == pytest.approx(3, abs=0.01)
        task.cancel()

    World(seed=1).run(workload)
