"""Fair shares of the file bytes written per event loop iteration.

Here: quotas per connection and in total, the queue of connections at their quota: a hundred fast readers of 50 MB would
delay all others.
Not here: the writes (`stream`), turns of requests (`scheduling.fair_share`).
"""

import asyncio
from typing import Protocol

from busway_bus.kernel.limits import WRITE_ROUND_BYTES_MAX, WRITE_SHARE_BYTES_MAX


class Writer(Protocol):
    """A connection that waits for its turn."""

    def write_on(self) -> None:
        """Continue in this turn."""


class WriteRounds:
    """Shares the iterations of one event loop between its connections."""

    def __init__(self) -> None:
        self._left = WRITE_ROUND_BYTES_MAX
        self._written: dict[Writer, int] = {}
        self._queue: dict[Writer, None] = {}
        self._round: asyncio.Handle | None = None

    def room(self, writer: Writer) -> int:
        """Return how many bytes of files a connection may write now.

        At 0 `write_on` is called in its turn.
        """
        room = min(self._left, WRITE_SHARE_BYTES_MAX - self._written.get(writer, 0))
        if room <= 0:
            self._queue[writer] = None
            return 0
        return room

    def written(self, writer: Writer, count: int) -> None:
        self._left -= count
        self._written[writer] = self._written.get(writer, 0) + count
        if self._round is None:
            self._round = asyncio.get_running_loop().call_soon(self._next_round)

    def leave(self, writer: Writer) -> None:
        self._queue.pop(writer, None)

    def _next_round(self) -> None:
        self._round = None
        self._left = WRITE_ROUND_BYTES_MAX
        self._written.clear()
        waiting, self._queue = self._queue, {}
        while waiting and self._left > 0:
            writer = next(iter(waiting))
            del waiting[writer]
            writer.write_on()
        self._queue = {**waiting, **self._queue}  # those not reached come first
