"""Bounds on the size and number of large responses.

What lives here: the remaining size of a response that is being built (`AnswerRoom`), and the order in which large ones are built (`LargeAnswers`).
What does not: their content, and responses that a client does not read (`server.response_memory`).
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
        """Take the size of one more item, about; return whether it fits."""
        if size > self._left and not self._empty:
            return False
        self._left -= size
        self._empty = False
        return True


class LargeAnswers:
    """Bounds the large responses that are built or encoded at a time; hosts take turns."""

    def __init__(self, at_once: int = LARGE_ANSWERS_AT_ONCE_MAX) -> None:
        self._free = at_once
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def begin(self, host: str) -> None:
        """Wait until one may be built for a client of this host; `end` must follow."""
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
        """Release a slot after a response is encoded or failed, and start the next."""
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
