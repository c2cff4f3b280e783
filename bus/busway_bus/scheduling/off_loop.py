"""Blocking work, such as disk I/O, outside the event loop's thread.

Here: one call.
Not here: long computations (`time_slices`).
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")


async def off_loop(work: Callable[[], R]) -> R:
    """Run `work` in another thread; cancellation is raised only after it ends."""
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
