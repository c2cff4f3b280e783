"""Long computations, in slices too short to delay the event loop.

Here: one thread for all tasks, round-robin; more are no faster under the GIL.
Not here: the work, a generator that yields often.
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
    def __init__(self, result: R) -> None:
        self.result = result


class Slices:
    """Thread that runs generators in slices of `SLICE_S`."""

    def __init__(self, machine: Machine = OS) -> None:
        self._monotonic_s = machine.monotonic_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="busway-slices")

    async def run(self, steps: Generator[None, None, R]) -> R:
        loop = asyncio.get_running_loop()
        while True:
            over = await loop.run_in_executor(self._thread, _slice, steps, self._monotonic_s)
            if over is not None:
                return over.result

    def close(self) -> None:
        """Stop the thread after the current slice."""
        self._thread.shutdown(wait=True, cancel_futures=True)


def _slice(steps: Generator[None, None, R], monotonic_s: Callable[[], float]) -> _Over[R] | None:
    end = monotonic_s() + SLICE_S
    try:
        while monotonic_s() < end:
            next(steps)
    except StopIteration as over:
        return _Over(over.value)
    return None
