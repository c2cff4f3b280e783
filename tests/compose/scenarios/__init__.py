"""What each service is asked from outside, one module a service.

Here: the list, and what a scenario is.
Not here: containers (`tests.compose.stack`). To add one: a class as `Scenario` says, and a name in `scenarios`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import httpx2
from tests.compose.stack import Stack
from tests.support.patience import patient

SETTLE_S: Final = patient(60.0)


class Scenario(Protocol):
    """The users of one service; a new instance for each test.

    Attributes:
        service: in compose.yaml; its port is SERVICE_PORT.
        half_way: set when half of the requests are answered.
    """

    service: str
    half_way: asyncio.Event

    async def prepare(self, http: httpx2.AsyncClient) -> None:
        """Bring about what the requests need."""

    async def load(self, http: httpx2.AsyncClient) -> None:
        """Send requests, all of which are answered well even if the bus dies in the middle."""

    async def exact(self, http: httpx2.AsyncClient) -> None:
        """Wait until the service has handled what was sent; then everything is there once."""


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for it, as long as `SETTLE_S`."""
    end = time.monotonic() + SETTLE_S
    while not await condition():
        assert time.monotonic() < end, "it did not come true"
        await asyncio.sleep(0.2)


def scenarios(stack: Stack) -> list[Scenario]:
    """New ones."""
    from tests.compose.scenarios.gettaxi import GetTaxi
    from tests.compose.scenarios.movieflix import MovieFlix
    from tests.compose.scenarios.mybank import MyBank
    from tests.compose.scenarios.mysocialmedia import MySocialMedia

    return [MovieFlix(), MySocialMedia(), GetTaxi(), MyBank(stack)]
