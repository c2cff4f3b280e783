"""Yielding the event loop, which a worker's connectors and REST API share.

Here: yielding in time.
Not here: long computations, which belong in a thread.
"""

import asyncio
import time
from typing import Final

_TURN_S: Final = 0.01
"""Limit of a task that never has to wait, before it yields."""


class LoopYield:
    def __init__(self) -> None:
        self._since = time.monotonic()

    async def share(self) -> None:
        if time.monotonic() - self._since >= _TURN_S:
            await asyncio.sleep(0)
            self._since = time.monotonic()
