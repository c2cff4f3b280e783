"""Whose turn it is on the event loop.

What lives here: a share of each round of the loop for what clients ask, and who waits for the next one: hosts take turns, and the
connections of a host among themselves, so that a thousand connections of one peer get no more than one of another. What does not:
work that touches nothing that changes, which has a thread (`time_slices`).
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
"""Work for clients in one round of the loop; a single request may take longer, and is the last one of its round then."""
TURN_S: Final = ROUND_S / 10
"""Of which so much is one turn while others wait: some small requests of a connection, whose answers then go out together."""


class Turns:
    """Shares the loop between clients, by the clock of `machine`."""

    def __init__(self, machine: Machine = OS) -> None:
        self._monotonic_s = machine.monotonic_s
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._end: float | None = None
        self._handle: asyncio.Handle | None = None
        self._turn_end: float | None = None

    def over(self) -> bool:
        """Whether whoever asks should `wait` rather than work on: the round is over, or its turn is and others wait."""
        now = self._monotonic_s()
        end = self._end_of_round(now)
        if self._turn_end is not None and now >= self._turn_end and self._waiting:
            return True
        return now >= end

    def long_over(self) -> bool:
        """The same for whoever only takes in what has come, which is soon done: the round has lasted for twice its share."""
        now = self._monotonic_s()
        return now >= self._end_of_round(now) + ROUND_S

    def _end_of_round(self, now: float) -> float:
        if self._end is None:
            self._end = now + ROUND_S
            self._schedule()
        return self._end

    def wait(self, host: str, turn: Callable[[], None]) -> None:
        """Call `turn` when it is the turn of this client of `host`; it should do one thing after the other, and look whether it is
        `over` after each."""
        self._waiting.setdefault(host, deque()).append(turn)
        self._schedule()

    async def run(self, host: str, steps: Generator[None, None, R]) -> R:
        """What `steps` returns or raises, after all of them, a round's share at a time; dropped where nobody waits for it any more."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.wait(host, partial(self._step, host, steps, answer))
        return await answer

    def _step(self, host: str, steps: Generator[None, None, R], answer: "asyncio.Future[R]") -> None:
        """One turn of `run`. Nothing here refers to itself: an answer of megabytes would stay until somebody looks for garbage."""
        if answer.done():
            steps.close()
            return
        end = self._monotonic_s() + ROUND_S
        try:
            while self._monotonic_s() < end:
                next(steps)
        except StopIteration as last:
            answer.set_result(last.value)
        except Exception as problem:  # noqa: BLE001 - it is told to whoever waits
            answer.set_exception(problem)
        else:
            self.wait(host, partial(self._step, host, steps, answer))

    def _schedule(self) -> None:
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        """A new round: those who wait come first."""
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
