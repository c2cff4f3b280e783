"""The time of a running event loop, in the hands of a test.

What lives here: `StandingTime`: the loop's clock, its timers and its machine, which move when they are told to. What does not: what a test
bus makes of it (`clock`), a whole simulated machine (`busway_bus.testing`).

Everything that is scheduled on the loop moves together: the app, its clients, a broker and a registry that run there, `asyncio.sleep` and
`asyncio.timeout` of handlers and of the test. Sockets, threads and other processes keep real time: between two timers the loop waits until
nothing is ready, and no call in an executor is under way.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from busway.net.machine import OS
from busway_protocol.machine import Machine

REACT_S: Final = 20.0
"""How long the app may take to do something after a wait between attempts has ended."""
_CALM_S: Final = 0.001
"""So long nothing must have come over a socket, before the next timer's moment is taken for the present."""
_STILL_S: Final = 0.02
"""So long where nobody asked for time to pass; then it passes by as much, so that a client's batch fills up and a broker is reached again."""


class StandingTime:
    """An event loop's time while it is installed there.

    Attributes:
        now_s: what the loop says, as far as time was let pass.
        awaits_reaction_since_s: a wait between attempts has ended, at that real time, and nothing has come of it yet.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now_s = float(math.ceil(loop.time()))
        self._began_s = self.now_s
        self.awaits_reaction_since_s: float | None = None
        self._loop: Any = loop
        self._targets: list[tuple[float, asyncio.Future[None]]] = []
        self._patience: list[tuple[float, asyncio.Future[None]]] = []
        self._calls = 0
        self._wall_ms = OS.wall_ms()
        self._poll: Callable[[float], list[Any]] = loop._selector.select  # type: ignore[attr-defined]
        self._run_in_executor = loop.run_in_executor
        self.machine = Machine(
            wall_ms=lambda: self._wall_ms + int((self.now_s - self._began_s) * 1000),
            monotonic_s=lambda: self.now_s,
            uuid4=OS.uuid4,
            chance=OS.chance,
        )

    # What a test does

    async def advance(self, seconds: float) -> None:
        """Let time pass: timers end in their order, each when all that can happen before has happened; new ones may end, too.

        Raises:
            AssertionError: a wait between attempts ended and the app did nothing.
        """
        done = self._loop.create_future()
        self._targets.append((self.now_s + seconds, done))
        self._targets.sort(key=lambda target: target[0])
        await done

    async def patience(self, seconds: float) -> None:
        """Returns after so many real seconds."""
        done = self._loop.create_future()
        self._patience.append((OS.monotonic_s() + seconds, done))
        await done

    def even(self) -> float:
        """Go on at the next whole second, which is returned."""
        self.now_s = float(math.ceil(self.now_s))
        return self.now_s

    # What the loop asks

    def select(self, timeout: float | None) -> list[Any]:
        """What its selector is asked: which sockets are ready. Where it would wait for a timer, time moves if it may."""
        events = self._poll(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        self._lose_patience()
        if self._calls or self.awaits_reaction_since_s is not None:
            return self._poll(_STILL_S)
        if events := self._poll(_CALM_S if self._targets else _STILL_S):
            return events
        due_s: float = self._loop._scheduled[0]._when if self._loop._scheduled else math.inf
        if self._targets:
            until_s, done = self._targets[0]
            if due_s <= until_s:
                self._go_to(due_s)
            else:
                self._go_to(until_s)
                del self._targets[0]
                if not done.done():
                    done.set_result(None)
        else:
            self._go_to(min(due_s, self.now_s + _STILL_S))
        return []

    def _go_to(self, moment_s: float) -> None:
        # Timers that are a nanosecond apart are one moment for the loop, too.
        self.now_s = max(self.now_s, round(moment_s, 9))

    def run_in_executor(self, executor: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        """As the loop's own; time stands still until the call has ended."""
        future = self._run_in_executor(executor, function, *arguments)
        self._calls += 1
        future.add_done_callback(self._called)
        return future

    def _called(self, _: object) -> None:
        self._calls -= 1

    def _lose_patience(self) -> None:
        now_s = OS.monotonic_s()
        for one in [one for one in self._patience if one[0] <= now_s or one[1].done()]:
            self._patience.remove(one)
            if not one[1].done():
                one[1].set_result(None)
        since_s = self.awaits_reaction_since_s
        if since_s is not None and now_s - since_s > REACT_S:
            self.awaits_reaction_since_s = None
            text = f"the wait that ended at {self.now_s:g} s led to nothing within {REACT_S:g} s"
            while self._targets:
                _, done = self._targets.pop()
                if not done.done():
                    done.set_exception(AssertionError(text))


def time_of_loop() -> StandingTime | None:
    """The running loop's, if its time stands."""
    return cast("StandingTime | None", getattr(asyncio.get_running_loop(), "busway_time", None))


@contextlib.contextmanager
def standing_time() -> Iterator[StandingTime]:
    """The time of the running event loop stands still within the block, but for what is let pass.

    Raises:
        ValueError: it is no event loop of asyncio's own.
    """
    loop: Any = asyncio.get_running_loop()
    if (time := time_of_loop()) is not None:  # another test bus on the same loop
        yield time
        return
    if not isinstance(loop, asyncio.SelectorEventLoop):
        raise ValueError(
            f'clock="manual" moves the time of asyncio\'s own event loop; this one is {type(loop).__module__}.{type(loop).__name__}'
        )
    time = StandingTime(loop)
    selector: Any = cast("Any", loop)._selector
    new = {
        "time": lambda: time.now_s,
        "run_in_executor": time.run_in_executor,
        "machine": time.machine,
        "busway_time": time,
    }
    selector.select = time.select
    for name, value in new.items():
        setattr(loop, name, value)
    try:
        yield time
    finally:
        del selector.select
        for name in new:
            delattr(loop, name)
