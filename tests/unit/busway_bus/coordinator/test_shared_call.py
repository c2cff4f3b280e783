"""A call that many need at once."""

import asyncio

import pytest
from tests.unit.busway_bus.coordinator.brokers import turn

from busway_bus.coordinator.shared_call import SharedCall
from busway_protocol.errors import ErrorCode, KafkaError


async def test_concurrent_callers_share_a_call_and_its_failure() -> None:
    """The next caller makes another; a cancelled one ends it for no other."""
    calls: list[asyncio.Future[None]] = []

    async def call() -> None:
        calls.append(asyncio.get_running_loop().create_future())
        await calls[-1]

    shared = SharedCall(call)
    cancelled, *failing = [asyncio.ensure_future(shared.made()) for _ in range(3)]
    await turn()
    cancelled.cancel()
    await turn()
    calls[0].set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    for caller in failing:
        with pytest.raises(KafkaError):
            await caller
    again = asyncio.ensure_future(shared.made())
    await turn()
    calls[1].set_result(None)
    await again
    assert len(calls) == 2
