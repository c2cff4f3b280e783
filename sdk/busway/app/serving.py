"""An app that runs until a signal.

Here: signals while an app starts or runs.
Not here: starting and stopping (`application`).
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, Protocol

from busway.errors import NotRunning

logger: logging.Logger = logging.getLogger("busway.app")

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Served(Protocol):
    """An app that can be started and stopped."""

    drain_timeout_s: float

    @property
    def name(self) -> str:
        """The name in messages."""

    @property
    def records_in_hand(self) -> int:
        """Records in handlers at this moment."""

    @property
    def is_starting(self) -> bool:
        """Whether its start is under way."""

    @property
    def worker(self) -> object | None:
        """Its consume loop; None without handlers."""

    @property
    def queue_workers(self) -> Sequence[object]:
        """The workers of its queues."""

    @property
    def problem(self) -> BaseException | None:
        """Why it stopped by itself."""

    async def stop(self) -> None:
        """Stop it."""

    async def wait(self) -> None:
        """Return when it has stopped."""

    async def __aenter__(self) -> object:
        """Start it."""

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""


def _awaited(app: Served) -> str:
    if not (count := app.records_in_hand):
        return ""
    return f": it waits up to {app.drain_timeout_s:g} s for its handlers, which have {count} record{'s' * (count != 1)}"


def _end_at_once(app: Served) -> None:
    """End the process by SIGINT, as a kill would: uncommitted records are handled again."""
    logger.warning("%s ends at once; what it has not committed is handled again", app.name)
    asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)


async def _until(work: Coroutine[Any, Any, None], stopped: asyncio.Event) -> None:
    working, stop = asyncio.ensure_future(work), asyncio.ensure_future(stopped.wait())
    try:
        await asyncio.wait([working, stop], return_when=asyncio.FIRST_COMPLETED)
        if not stopped.is_set():
            working.result()
    finally:
        for task in (working, stop):
            task.cancel()
        await asyncio.gather(working, stop, return_exceptions=True)


async def serve(app: Served, before: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
    """Start the app, and stop it at the first signal or when it stops by itself.

    A SIGINT after the first signal ends the process at once.

    Args:
        before: awaited before the start; a signal cancels it, and the app is not started.

    Raises:
        HandlerFailed, BuswayError: the app could not start, or stopped by itself.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    stopping: set[asyncio.Task[None]] = set()

    def stop(number: signal.Signals) -> None:
        if stopped.is_set():
            # SIGTERM may arrive twice: a service manager signals all processes, and a supervisor forwards its own.
            if number == signal.SIGINT:
                _end_at_once(app)
            return
        stopped.set()
        logger.info("%s stops%s; Ctrl-C again ends it at once", app.name, _awaited(app))
        if app.is_starting:
            stopping.add(loop.create_task(app.stop()))

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        if before is not None:
            await _until(before(), stopped)
            if stopped.is_set():
                return
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
