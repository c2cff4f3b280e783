"""Bounds on the size and number of large responses.

Here: a response's remaining size, the turns of large ones.
Not here: their content, unread responses (`server.response_memory`).
"""

import asyncio
from collections import deque

from busway_bus.kernel.limits import ANSWER_BYTES_MAX, LARGE_ANSWERS_AT_ONCE_MAX


class AnswerRoom:
    """Remaining bytes of one response.

    The first item always fits: it could not be described otherwise.
    """

    __slots__ = ("_empty", "_left")

    def __init__(self, limit: int = ANSWER_BYTES_MAX) -> None:
        self._left = limit
        self._empty = True

    def take(self, size: int) -> bool:
        """Take one more item's approximate size; return whether it fits."""
        if size > self._left and not self._empty:
            return False
        self._left -= size
        self._empty = False
        return True


class LargeAnswers:
    """Bounds the large responses under construction; hosts take turns."""

    def __init__(self, at_once: int = LARGE_ANSWERS_AT_ONCE_MAX) -> None:
        self._free = at_once
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def begin(self, host: str) -> None:
        """Wait for this host's turn; `end` must follow."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.end()
            raise

    def end(self) -> None:
        """Release a slot once a response is encoded or failed."""
        while self._waiting:
            host = next(iter(self._waiting))
            turns = self._waiting.pop(host)
            turn = turns.popleft()
            if turns:
                self._waiting[host] = turns  # behind the other hosts
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
