"""The wait between two heartbeats, which a lost connection ends."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.support.patience import patient

from busway.consumer.heartbeat import CoordinatorContact
from busway.net.retry import Backoff
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import HeartbeatResponse

LONG_S = 3600.0


class Coordinator:
    """A coordinator that answers each request; its connection is lost when the test says so."""

    group = "g"

    def __init__(self) -> None:
        self.lose: Callable[[], None] | None = None

    def backoff(self) -> Backoff:
        return Backoff(initial=0.0)

    async def ask(self, request: Any, *, timeout_s: float, when_lost: Callable[[], None]) -> HeartbeatResponse:
        self.lose = when_lost
        return HeartbeatResponse(error_code=ErrorCode.NONE)


async def asked(contact: CoordinatorContact) -> None:
    code, _, _ = await contact.ask(None, timeout_s=1.0)
    assert code is ErrorCode.NONE


async def test_a_lost_connection_ends_the_wait() -> None:
    """Also one that was lost right after the response."""
    coordinator = Coordinator()
    contact = CoordinatorContact(coordinator)  # type: ignore[arg-type]
    async with asyncio.timeout(patient(10)):
        for _ in range(3):
            await asked(contact)
            assert coordinator.lose is not None
            coordinator.lose()
            await contact.wait(LONG_S)


async def test_without_a_loss_the_interval_is_waited() -> None:
    """A loss before the last request does not count: that one has another connection."""
    coordinator = Coordinator()
    contact = CoordinatorContact(coordinator)  # type: ignore[arg-type]
    await asked(contact)
    assert coordinator.lose is not None
    coordinator.lose()
    await asked(contact)
    waiting = asyncio.ensure_future(contact.wait(LONG_S))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
