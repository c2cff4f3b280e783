"""A demo as a command: its signals and its exit code.

Here: what every demo does with its end.
Not here: options and the demo itself.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from busway import BuswayError
from kit.parts import DemoFailed, on_signals
from kit.summary import Summary

HURRY_S: Final = 1.0
"""For the summary and closing connections, after a second Ctrl-C."""


class Interrupts:
    """Ctrl-C: the first asks for the end with a summary, the second for the summary at once.

    Attributes:
        stop: set by the first.
        hurry: set by the second.
    """

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()

    def interrupt(self) -> None:
        """Note a Ctrl-C."""
        if self.stop.is_set():
            self.hurry.set()
        else:
            sys.stderr.write("\nstopping: the summary comes; Ctrl-C again shows it at once\n")
        self.stop.set()

    async def wait(self, work: Awaitable[Any], seconds: float) -> bool:
        """Wait for work until it is done, a second Ctrl-C or the time has passed; return whether it was done.

        Raises:
            Exception: what the work raised.
        """
        return await _first(work, self.hurry, seconds)

    async def until_stop(self, work: Awaitable[Any]) -> bool:
        """Wait for work until it is done or Ctrl-C; return whether it was done."""
        return await _first(work, self.stop, None)

    async def to_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for work; after a second Ctrl-C it has `HURRY_S` left, then it is cancelled.

        Raises:
            Exception: what the work raised.
        """
        task, asked = asyncio.ensure_future(work), asyncio.ensure_future(self.hurry.wait())
        try:
            await asyncio.wait([task, asked], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await asyncio.wait([task], timeout=HURRY_S)
            if task.done():
                task.result()
        finally:
            asked.cancel()
            task.cancel()
            await asyncio.wait([task, asked])


async def _first(work: Awaitable[Any], event: asyncio.Event, seconds: float | None) -> bool:
    task, asked = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([task, asked], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        asked.cancel()
        task.cancel()
        await asyncio.wait([task, asked])


def stopped_early(begun: float) -> Summary:
    """Return the summary of a demo that was stopped before its load began.

    Args:
        begun: when the demo began, on the monotonic clock.
    """
    summary = Summary()
    summary.figure("stopped before the load began", f"after {time.monotonic() - begun:.1f} s")
    return summary


async def beside(work: Coroutine[Any, Any, None], *background: Coroutine[Any, Any, Any]) -> None:
    """Run work to its end while the background runs; all of it ends with the work, or with the first failure.

    Raises:
        Exception: what the work or the background raised first.
    """
    main = asyncio.ensure_future(work)
    tasks = [main, *(asyncio.ensure_future(each) for each in background)]
    try:
        running = set(tasks)
        while not main.done():
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def run_demo(
    demo: Coroutine[Any, Any, int] | Callable[[Interrupts], Coroutine[Any, Any, int]], *problems: type[Exception]
) -> int:
    """Run it to its end; its exit code, 1 with one line where a part failed, 130 and 143 where a signal ended it.

    Args:
        demo: ended by SIGTERM and SIGHUP as by a cancellation, so that it ends its parts. One that is given `Interrupts` handles Ctrl-C itself.
        problems: further exceptions that are reported in one line.
    """

    async def ended_by_signals() -> int:
        whole = asyncio.current_task()
        assert whole is not None
        on_signals(whole.cancel, signal.SIGTERM, signal.SIGHUP)
        work = demo
        if callable(work):
            interrupts = Interrupts()
            on_signals(interrupts.interrupt, signal.SIGINT)
            work = work(interrupts)
        # Blocked by `busway demo` until there is a handler.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return await work

    expected: tuple[type[Exception], ...] = (DemoFailed, BuswayError, *problems)
    try:
        return asyncio.run(ended_by_signals())
    except expected as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    except asyncio.CancelledError:
        return 143
