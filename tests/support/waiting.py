"""Waiting in tests until something holds.

Here: the loops, each with a deadline.
Not here: the factor on it (`patience`); the waits of what is tested.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from busway import Consumer
from tests.support.patience import patient


async def until(
    condition: Callable[[], bool | Awaitable[bool]], *, seconds: float = 20.0, pause_s: float = 0.01
) -> None:
    """Return once the condition holds, a function or a coroutine function.

    Args:
        seconds: that a quiet machine needs at most.
        pause_s: between two looks; 0 looks in each iteration of the event loop.

    Raises:
        TimeoutError: it does not hold in time.
    """
    async with asyncio.timeout(patient(seconds)):
        while True:
            holds = condition()
            if await holds if isinstance(holds, Awaitable) else holds:
                return
            await asyncio.sleep(pause_s)


def blocking_until(condition: Callable[[], bool], *, seconds: float = 20.0, pause_s: float = 0.1) -> None:
    """Return once the condition holds; for tests without an event loop.

    Args:
        seconds: that a quiet machine needs at most.
        pause_s: between two looks.

    Raises:
        TimeoutError: it does not hold in time.
    """
    deadline = time.monotonic() + patient(seconds)
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not after {patient(seconds):.0f} s: {condition}")
        time.sleep(pause_s)


async def until_assigned(partitions: int, *consumers: Consumer) -> None:
    """Poll until each consumer has so many partitions.

    Raises:
        TimeoutError: one has not after 30 s, times the patience.
    """
    async with asyncio.timeout(patient(30.0)):
        while any(len(consumer.assignment()) != partitions for consumer in consumers):
            await asyncio.gather(*(consumer.getmany(timeout_ms=20) for consumer in consumers))
