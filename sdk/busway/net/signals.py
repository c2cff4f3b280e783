"""The signals that ask a process to end.

What lives here: waiting for the first of them, or of events, for whatever serves until then. What does not: what is ended, and how (whoever waits); an
app that is still starting (`busway.app.serving`), a supervisor that passes signals on (`busway.cli.processes`).
"""

import asyncio
import signal
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM)


def until_signal(*others: asyncio.Event) -> "asyncio.Task[None]":
    """Done at SIGINT or SIGTERM, or when one of `others` is set. Signals are listened to from this call on, so that whoever reads
    afterwards that the process serves may end it at once. A second signal ends the process without waiting for anything."""
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
    """Return when one of them is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
