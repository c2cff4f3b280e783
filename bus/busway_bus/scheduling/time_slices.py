"""Work that computes for long, in slices so short that the event loop does not notice.

What lives here: one thread, in which every task that was begun gets a slice in turn. What does not: the work, which comes as a
generator that gives way often. More threads would not make it faster: the interpreter runs one at a time.
"""

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from busway.net.machine import OS
from busway_bus.kernel.limits import SLICE_S
from busway_protocol.machine import Machine

R = TypeVar("R")


class _Over(Generic[R]):
    """What a generator returned."""

    def __init__(self, result: R) -> None:
        self.result = result


class Slices:
    """Runs generators to their ends beside the loop, in slices by the clock of `machine`."""

    def __init__(self, machine: Machine = OS) -> None:
        self._monotonic_s = machine.monotonic_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="busway-slices")

    async def run(self, steps: Generator[None, None, R]) -> R:
        """What `steps` returns or raises, after all of them."""
        loop = asyncio.get_running_loop()
        while True:
            over = await loop.run_in_executor(self._thread, _slice, steps, self._monotonic_s)
            if over is not None:
                return over.result

    def close(self) -> None:
        """End the thread after the slice that is under way."""
        self._thread.shutdown(wait=True, cancel_futures=True)


def _slice(steps: Generator[None, None, R], monotonic_s: Callable[[], float]) -> _Over[R] | None:
    end = monotonic_s() + SLICE_S
    try:
        while monotonic_s() < end:
            next(steps)
    except StopIteration as over:
        return _Over(over.value)
    return None
