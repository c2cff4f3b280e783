"""Signals that end a process.

Not here: what is ended, and how (`busway.app.serving`, `busway.cli.processes`).
"""

import asyncio
import signal
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM)


def until_signal(*others: asyncio.Event) -> "asyncio.Task[None]":
    """Return a task that ends at SIGINT, SIGTERM or one of `others`.

    Handlers are installed by this call, before the process reports that it serves. A second signal ends the process at
    once.
    """
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    def ask() -> None:
        asked.set()
        for number in ENDING:
            loop.remove_signal_handler(number)

    for number in ENDING:
        loop.add_signal_handler(number, ask)
    return asyncio.ensure_future(first_of(asked, *others))


async def first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
