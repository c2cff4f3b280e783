"""Sending many events without piling them up.

Here: a loop with a bound on what is under way, and a pace.
Not here: the events.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

E = TypeVar("E")
IN_FLIGHT: Final = 500
"""Events that were sent and are not acknowledged yet."""


async def send_all(
    events: Iterable[E],
    send: "Callable[[E], Awaitable[asyncio.Future[Any]]]",
    acknowledged: Callable[[E], Any],
    *,
    in_flight: int = IN_FLIGHT,
    per_s: float | None = None,
) -> int:
    """Send all events in their order; returns how many. `acknowledged` is called for each, in the same order.

    Args:
        events: to be sent.
        send: such as `Topic.send_soon`: returns when the event waits to be sent, with what is done when it is acknowledged.
        acknowledged: called with each event that is safe.
        in_flight: how many may wait for that; then the oldest is waited for.
        per_s: at most so many in a second; None for as fast as they are acknowledged.

    Raises:
        BuswayError: an event was not acknowledged.
    """
    loop = asyncio.get_running_loop()
    waiting: deque[tuple[E, asyncio.Future[Any]]] = deque()
    begun, sent = loop.time(), 0

    async def settle(left: int) -> None:
        while waiting and (len(waiting) > left or waiting[0][1].done()):
            event, future = waiting[0]
            await future
            waiting.popleft()
            acknowledged(event)

    try:
        for event in events:
            waiting.append((event, await send(event)))
            sent += 1
            await settle(in_flight - 1)
            if per_s is not None and (early := begun + sent / per_s - loop.time()) > 0:
                await asyncio.sleep(early)
        await settle(0)
    finally:
        for _, future in waiting:
            future.cancel()
    return sent
