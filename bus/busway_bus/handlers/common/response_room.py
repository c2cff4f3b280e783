"""How large one answer may become that tells of many things, and which large answers are made at one time.

What lives here: the count of what an answer takes while it is made (`AnswerRoom`), and whose turn it is to have one made (`LargeAnswers`).
What does not: what the answers say; what becomes of one that its client does not take (`server.response_memory`).
"""

import asyncio
from collections import deque

from busway_bus.kernel.limits import ANSWER_BYTES_MAX, LARGE_ANSWERS_AT_ONCE_MAX


class AnswerRoom:
    """What one answer may still take, in bytes.

    Its first thing is told however large it is: there would be no way to learn of it.
    """

    __slots__ = ("_empty", "_left")

    def __init__(self, limit: int = ANSWER_BYTES_MAX) -> None:
        self._left = limit
        self._empty = True

    def take(self, size: int) -> bool:
        """Whether one more thing of about this size may be told."""
        if size > self._left and not self._empty:
            return False
        self._left -= size
        self._empty = False
        return True


class LargeAnswers:
    """Those that are made or put into bytes now: so many at a time, and hosts take turns."""

    def __init__(self, at_once: int = LARGE_ANSWERS_AT_ONCE_MAX) -> None:
        self._free = at_once
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def begin(self, host: str) -> None:
        """Return when one may be made for a client of this host; `end` has to follow."""
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
        """One is in bytes, or came to nothing: the next."""
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
