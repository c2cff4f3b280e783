"""Letting others run: all connectors of a worker, and its REST API, share one event loop.

What lives here: giving the loop away in time. What does not: work that takes long in one piece, which belongs in a thread.
"""

import asyncio
import time
from typing import Final

_TURN_S: Final = 0.01
"""How long a task goes on before it lets others run, where what it waits for is always there already."""


class Turns:
    """The turns of one task on the event loop."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def share(self) -> None:
        """Let others run, if this one ran for long."""
        if time.monotonic() - self._since >= _TURN_S:
            await asyncio.sleep(0)
            self._since = time.monotonic()
