"""One thing after the other, each in a round of the event loop by itself.

What lives here: who waits for a round. What does not: what clients ask, which has a share of each round (`scheduling.fair_share`), and how
much is one thing.
"""

import asyncio
from collections import deque


class Rounds:
    """Lets those who wait go on, one in each round of the loop, who came first first; clients that have sent something come before."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._going_on = False

    async def turn(self) -> None:
        """Wait for a round."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if not self._going_on:
            self._going_on = True
            loop.call_soon(self._next)
        await turn

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                turn.get_loop().call_soon(self._next)
                return
        self._going_on = False
