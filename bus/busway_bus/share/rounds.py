"""Background work, one piece per round of the event loop.

Here: the queue for a round.
Not here: clients' requests, which have a share of each round (`scheduling.fair_share`), the size of a piece.
"""

import asyncio
from collections import deque


class Rounds:
    """Wakes one waiter per round, in FIFO order. Arrived requests run first."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._going_on = False

    async def turn(self) -> None:
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
