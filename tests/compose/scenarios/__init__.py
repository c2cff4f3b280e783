"""What each service is asked from outside, one module a service.

What lives here: the list, and what a scenario is. What does not: containers (`tests.compose.stack`). To add one: a class as `Scenario`
says, and a line in `SCENARIOS`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import httpx2

SETTLE_S: Final = 60.0


class Scenario(Protocol):
    """The users of one service; a new instance for each test.

    Attributes:
        service: in compose.yaml; its port is SERVICE_PORT.
        half_way: set when half of the requests are answered.
        made: a topic that the requests fill, and how many records they made.
    """

    service: str
    half_way: asyncio.Event

    @property
    def made(self) -> tuple[str, int]:
        """See above."""

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


def scenarios() -> list[Scenario]:
    """New ones."""
    from tests.compose.scenarios.movieflix import MovieFlix

    return [MovieFlix()]
