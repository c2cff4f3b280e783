"""Work that waits for the disk, in another thread than the event loop's.

What lives here: waiting for one such piece of work. What does not: work that computes for long (`time_slices`).
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")


async def off_loop(work: Callable[[], R]) -> R:
    """Run `work` in another thread; a cancelled caller still sees it end first."""
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
