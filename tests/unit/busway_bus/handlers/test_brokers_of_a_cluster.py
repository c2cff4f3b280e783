"""Requests of brokers to their controller, and of clients about brokers, as commands and back."""

import contextlib
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from tests.unit.busway_bus.controller.members import CLUSTER_ID, FEATURES, Members

from busway_bus.controller.controller import ITSELF
from busway_bus.handlers import unregister_broker
from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.for_controllers import broker_heartbeat, broker_registration
from busway_bus.metadata.image import Address
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    RegisteredFeature,
    RegisteredListener,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


class Controller:
    """Decides at once, on a small cluster."""

    def __init__(self, members: Members) -> None:
        self._members = members

    async def request(self, command: Any, context: Any) -> Any:
        assert context is ITSELF
        return self._members.run(command)


def context_of(members: Members) -> RequestContext:
    liveness = SimpleNamespace(
        received=lambda peer, node_id, epoch: None, deciding=lambda peer, node_id, epoch: contextlib.nullcontext()
    )
    node = SimpleNamespace(controller=Controller(members), liveness=liveness)
    return cast("RequestContext", SimpleNamespace(node=node, peer=None, for_controller=ITSELF))


def registration_of(node_id: int, **fields: Any) -> BrokerRegistrationRequest:
    standard: dict[str, Any] = {
        "cluster_id": CLUSTER_ID,
        "incarnation_id": UUID(int=7),
        "listeners": [RegisteredListener(name="S", host="h", port=9_092, security_protocol=3)],
        "features": [
            RegisteredFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in FEATURES
        ],
        "rack": "a",
        "log_dirs": [UUID(int=207)],
    }
    return BrokerRegistrationRequest(broker_id=node_id, **{**standard, **fields})


async def test_a_broker_registers() -> None:
    """With all that it says of itself; a refusal has its code and no epoch."""
    members = Members(1)
    context = context_of(members)
    answer = await broker_registration.handle(registration_of(7), context)
    broker = members.image.brokers[7]
    assert answer == BrokerRegistrationResponse(error_code=ErrorCode.NONE, broker_epoch=broker.epoch)
    assert (broker.incarnation, broker.rack, broker.directories) == (UUID(int=7), "a", (UUID(int=207),))
    assert broker.addresses == {"S": Address(host="h", port=9_092, security_protocol=3)}
    assert broker.features == {name: (low, high) for name, low, high in FEATURES}
    for fields, code in (
        ({"cluster_id": "x"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
    ):
        answer = await broker_registration.handle(registration_of(7, **fields), context)
        assert answer == BrokerRegistrationResponse(error_code=code, broker_epoch=-1)


async def test_a_restarted_broker_tells_the_epoch_of_its_clean_stop() -> None:
    """Then it stays an eligible leader; the first version without the epoch shows no clean stop."""
    for cleanly, elr in ((True, (7,)), (False, ())):
        members = Members(1)
        context = context_of(members)
        await broker_registration.handle(registration_of(7), context)
        members.beat(7)
        members.create("t", (7, 1), min_insync_replicas="2")
        previous = {"previous_broker_epoch": members.image.brokers[7].epoch} if cleanly else {}
        members.now_ms = 100_000
        again = registration_of(7, incarnation_id=UUID(int=8), **previous)
        assert (await broker_registration.handle(again, context)).error_code == ErrorCode.NONE
        assert members.partition("t").elr == elr


async def test_heartbeats_carry_states() -> None:
    """Caught up, fenced, and at last allowed to stop; a stale epoch has its code."""
    members = Members(2)
    members.create("t", (1, 2))
    context = context_of(members)
    epoch, offset = members.image.brokers[1].epoch, members.offset - 1

    async def beat(metadata_offset: int = offset, **fields: Any) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=1,
            **{
                "broker_epoch": epoch,
                "current_metadata_offset": metadata_offset,
                "want_fence": False,
                "want_shut_down": False,
                **fields,
            },
        )
        return await broker_heartbeat.handle(request, context)

    def answer(**fields: Any) -> BrokerHeartbeatResponse:
        return BrokerHeartbeatResponse(**{"error_code": 0, "should_shut_down": False, **fields})

    assert await beat() == answer(is_caught_up=True, is_fenced=False)
    assert await beat(want_fence=True) == answer(is_caught_up=True, is_fenced=True)
    assert await beat(epoch - 1) == answer(is_caught_up=False, is_fenced=True)
    assert await beat(broker_epoch=epoch + 1) == answer(error_code=ErrorCode.STALE_BROKER_EPOCH)
    await beat()
    members.create("u", (1, 2))
    assert await beat(want_shut_down=True) == answer(is_caught_up=True, is_fenced=False)
    members.beat(2)
    assert await beat(want_shut_down=True) == answer(is_caught_up=True, is_fenced=True, should_shut_down=True)
    directory = members.image.brokers[1].directories[0]
    await beat(offline_log_dirs=[directory], cordoned_log_dirs=[UUID(int=1_000)])
    assert members.image.brokers[1].cordoned_directories == (UUID(int=1_000),)


async def test_a_client_unregisters_a_broker() -> None:
    """A refusal has its text."""
    members = Members(2)
    context = context_of(members)
    answer = await unregister_broker.handle(UnregisterBrokerRequest(broker_id=2), context)
    assert answer == UnregisterBrokerResponse(error_code=ErrorCode.NONE, error_message=None)
    assert sorted(members.image.brokers) == [1]
    answer = await unregister_broker.handle(UnregisterBrokerRequest(broker_id=2), context)
    assert answer == UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message="Broker ID 2 is not currently registered"
    )
