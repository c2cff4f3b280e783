"""An app until a signal.

What lives here: which signals, and what they do to an app that starts or runs. What does not: starting and stopping (`bus`).
"""

import asyncio
import signal
from typing import TYPE_CHECKING, Final

from busway.errors import NotRunning

if TYPE_CHECKING:
    from busway.app.bus import App

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


async def serve(app: "App") -> None:
    """Start the app, and stop it at the first signal or when it stops by itself.

    Raises:
        HandlerFailed, BuswayError: the app could not start, or stopped by itself.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    stopping: set[asyncio.Task[None]] = set()

    def stop() -> None:
        stopped.set()
        if app.is_starting:
            stopping.add(loop.create_task(app.stop()))

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        async with app:
            waits: list[asyncio.Future[object]] = [asyncio.ensure_future(stopped.wait())]
            if app.worker is not None or app.queue_workers:
                waits.append(asyncio.ensure_future(app.wait()))
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
            if (problem := app.problem) is not None:
                raise problem
    except NotRunning:
        if not stopping:
            raise
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
