"""Fair scheduling of client work on the event loop.

Here: the share of each loop round for client requests, the queue for the next. Hosts are served round-robin, and so are
a host's connections.
Not here: long computations without shared mutable state (`time_slices`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Final, TypeVar

from busway.net.machine import OS
from busway_protocol.machine import Machine

R = TypeVar("R")
ROUND_S: Final = 0.005
"""Client work per loop round. A single request may exceed it and then ends its round."""
TURN_S: Final = ROUND_S / 10
"""Length of a turn while others wait: a few small requests of a connection, answered together."""


class FairScheduler:
    def __init__(self, machine: Machine = OS) -> None:
        self._monotonic_s = machine.monotonic_s
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._end: float | None = None
        self._handle: asyncio.Handle | None = None
        self._turn_end: float | None = None

    def over(self) -> bool:
        """Whether the caller should `wait`. The round is over, or its turn is and others wait."""
        if self._end is None:
            self._begin_round()
            return False
        now = self._monotonic_s()
        if self._turn_end is not None and now >= self._turn_end and self._waiting:
            return True
        return now >= self._end

    def long_over(self) -> bool:
        """As `over`, for cheap work such as reading input, with a round twice as long."""
        if self._end is None:
            self._begin_round()
            return False
        return self._monotonic_s() >= self._end + ROUND_S

    def _begin_round(self) -> None:
        self._end = self._monotonic_s() + ROUND_S
        self._schedule()

    def wait(self, host: str, turn: Callable[[], None]) -> None:
        """Queue `turn`, which should check `over` after each step."""
        self._waiting.setdefault(host, deque()).append(turn)
        self._schedule()

    async def run(self, host: str, steps: Generator[None, None, R]) -> R:
        """Run `steps` to its end, in turns of at most `ROUND_S`.

        Returns or raises as it does. A cancelled caller closes it early.
        """
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.wait(host, partial(self._step, host, steps, answer))
        return await answer

    def _step(self, host: str, steps: Generator[None, None, R], answer: "asyncio.Future[R]") -> None:
        """Run one turn of `run`, without a reference cycle.

        A cycle would keep megabytes until the next garbage collection.
        """
        if answer.done():
            steps.close()
            return
        end = self._monotonic_s() + ROUND_S
        try:
            while self._monotonic_s() < end:
                next(steps)
        except StopIteration as last:
            answer.set_result(last.value)
        except Exception as problem:  # noqa: BLE001 - passed on to the caller of `run`
            answer.set_exception(problem)
        else:
            self.wait(host, partial(self._step, host, steps, answer))

    def _schedule(self) -> None:
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        self._handle = None
        self._end = None
        if not self._waiting:
            return
        self._end = self._monotonic_s() + ROUND_S
        self._schedule()
        try:
            while self._waiting and (now := self._monotonic_s()) < self._end:
                self._turn_end = now + TURN_S
                host = next(iter(self._waiting))
                turns = self._waiting.pop(host)
                turn = turns.popleft()
                if turns:
                    self._waiting[host] = turns  # behind the other hosts
                turn()
        finally:
            self._turn_end = None
