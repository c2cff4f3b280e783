"""How many bytes of files go out in one round of the event loop, and whose.

What lives here: a quota of each connection and one of all together for a round, and the line of those whose quota is used up. What does
not: what is written (`stream`), whose request is worked on (`scheduling.fair_share`). Without it one client that reads fast enough would
be written to for as long as its answer lasts, 50 MB, and a hundred of them would keep a request waiting for all of theirs.
"""

import asyncio
from typing import Protocol

from busway_bus.kernel.limits import WRITE_ROUND_BYTES_MAX, WRITE_SHARE_BYTES_MAX


class Writer(Protocol):
    """Who waits for its turn."""

    def write_on(self) -> None:
        """It is its turn."""


class WriteTurns:
    """Shares the rounds of one event loop between its connections."""

    def __init__(self) -> None:
        self._left = WRITE_ROUND_BYTES_MAX
        self._written: dict[Writer, int] = {}
        self._line: dict[Writer, None] = {}
        self._round: asyncio.Handle | None = None

    def room(self, writer: Writer) -> int:
        """How many bytes of files a connection may write now; 0 makes it wait for its turn, in which `write_on` is called."""
        room = min(self._left, WRITE_SHARE_BYTES_MAX - self._written.get(writer, 0))
        if room <= 0:
            self._line[writer] = None
            return 0
        return room

    def written(self, writer: Writer, count: int) -> None:
        """A connection wrote so many bytes of files."""
        self._left -= count
        self._written[writer] = self._written.get(writer, 0) + count
        if self._round is None:
            self._round = asyncio.get_running_loop().call_soon(self._next_round)

    def leave(self, writer: Writer) -> None:
        """A connection is gone."""
        self._line.pop(writer, None)

    def _next_round(self) -> None:
        self._round = None
        self._left = WRITE_ROUND_BYTES_MAX
        self._written.clear()
        waiting, self._line = self._line, {}
        while waiting and self._left > 0:
            writer = next(iter(waiting))
            del waiting[writer]
            writer.write_on()
        self._line = {**waiting, **self._line}  # who was not reached comes before who is in line again
