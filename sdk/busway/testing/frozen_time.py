"""The time of an app under test, frozen until the test advances it.

What lives here: `FrozenTime`, a second clock on one event loop. What does not: which waits take their time from it (`busway.net.clock`),
what a test bus makes of it (`clock`), a whole simulated machine (`busway_bus.testing`).

The app's time is frozen: waits between attempts, the commit interval, windows of batches, an outbox's intervals, and what handlers,
dependencies, extensions and the lifespan await by asyncio, deadlines included, also in tasks of theirs. Everything else takes real time:
clients, broker, registry, tables that are read, a drain, and the test itself. So a group is joined, a broker is reached again, a batch fills
up and a session stays alive without `advance`, and no test waits for what only time could bring. Wall clocks are real.

A timer is the app's where `WAITS_IN` of its context is not `Time.REAL`; tasks inherit it from the app's start.
"""

import asyncio
import contextlib
import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Any, Final, cast

from busway.net.clock import WAITS_IN, Time
from busway.net.machine import OS
from busway_protocol.machine import Machine

REACT_S: Final = 20.0
"""How long, in real time, an app may take for what is due at a moment, before time passes on."""
_CALM_S: Final = 0.001
"""So long nothing must have come over a socket before time passes on."""
_BRIEF_S: Final = 0.02
"""A real timer that was to end so soon is waited for before time passes on: a producer's batch that fills up."""
_BRIEF_MAX_S: Final = 0.2
"""No longer than this, where one such timer follows another."""
_SAME_S: Final = 1e-6
"""Moments that are no further apart are one: sums of floating-point numbers are not exact."""
_TICK_S: Final = 1e-9
"""By so much time passes when a wait is asked for that is over already; else a loop that waits for a rest too small to add would never end."""


class FrozenTime:
    """The app's time, while it is installed on an event loop.

    Attributes:
        now_s: what the loop tells the app.
        awaits_reaction: a wait between attempts has ended, and nothing has come of it yet.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now_s = float(math.ceil(loop.time()))
        self.awaits_reaction = False
        self._loop: Any = loop
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = itertools.count()
        self._targets: list[tuple[float, int, asyncio.Future[None]]] = []
        self._brief: list[asyncio.TimerHandle] = []
        self._calls = 0
        self._passing = 0
        self._passed_at_s = self._moved_at_s = OS.monotonic_s()
        self._poll: Callable[[float | None], list[Any]] = loop._selector.select  # type: ignore[attr-defined]
        self._real_time, self._real_call_at = loop.time, loop.call_at
        self._real_executor = loop.run_in_executor
        self.machine = Machine(wall_ms=OS.wall_ms, monotonic_s=self.time, uuid4=OS.uuid4, chance=OS.chance)

    # What a test does

    async def advance(self, seconds: float) -> None:
        """Let time pass: waits end in their order, each when all that can happen before has happened; new ones may end, too.

        Raises:
            AssertionError: what was due at a moment was not done in time.
        """
        done = self._loop.create_future()
        self._moved_at_s = OS.monotonic_s()
        heapq.heappush(self._targets, (self.now_s + seconds, next(self._order), done))
        await done

    async def sleep(self, seconds: float) -> None:
        """A wait of the app's, whoever asks."""
        done = self._loop.create_future()
        timer = self._arm(self.now_s + seconds, lambda: done.done() or done.set_result(None), ())
        try:
            await done
        finally:
            timer.cancel()

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """Within, the app's time passes as everybody's: it starts, or stops."""
        self._pass()
        self._passing += 1
        try:
            yield
        finally:
            self._pass()
            self._passing -= 1

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """As `passing`; tasks that are made within are the app's."""
        token = WAITS_IN.set(Time.USER)
        try:
            with self.passing():
                yield
        finally:
            WAITS_IN.reset(token)

    def left_s(self) -> float | None:
        """How long until the app's next wait ends; None if it waits for nothing."""
        self._forget_cancelled()
        return self._timers[0][0] - self.now_s if self._timers else None

    def even(self) -> float:
        """Go on at the next whole second, which is returned."""
        self.now_s = float(math.ceil(self.now_s))
        return self.now_s

    # What the loop asks, and is asked

    def time(self) -> float:
        """As the loop's own, in the time of the context."""
        if WAITS_IN.get() is Time.REAL:
            return self._real_time()
        self._pass()
        return self.now_s

    def call_at(
        self, when: float, callback: Callable[..., Any], *arguments: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As the loop's own, in the time of the context."""
        waits_in = WAITS_IN.get()
        if waits_in is not Time.REAL:
            if waits_in is Time.USER:
                self.awaits_reaction = False  # a handler that was called again waits for something
            self._pass()
            return self._arm(when, callback, arguments, context)
        timer = self._real_call_at(when, callback, *arguments, context=context)
        if when - self._real_time() <= _BRIEF_S:
            self._brief.append(timer)
        return timer

    def run_in_executor(self, executor: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        """As the loop's own; time does not pass on until the call has ended."""
        future = self._real_executor(executor, function, *arguments)
        self._calls += 1
        future.add_done_callback(self._called)
        return future

    def select(self, timeout: float | None) -> list[Any]:
        """What the loop's selector is asked: which sockets are ready. Where nothing is, time passes on if the test lets it."""
        self._pass()
        if self._end_waits():
            return self._poll(0)
        self._brief = [timer for timer in self._brief if not timer.cancelled() and timer.when() > self._real_time()]
        if not self._targets:
            if self._passing and self._timers:
                left_s = max(self._timers[0][0] - self.now_s, 0)
                timeout = left_s if timeout is None else min(timeout, left_s)
            return self._poll(timeout)
        held_s = OS.monotonic_s() - self._moved_at_s
        is_busy = self._calls or self.awaits_reaction or (self._brief and held_s < _BRIEF_MAX_S)
        if is_busy and held_s > REACT_S:
            self._give_up()
            return self._poll(0)
        wait_s = _BRIEF_S if is_busy else _CALM_S
        if timeout is not None and timeout <= wait_s:
            return self._poll(timeout)
        events = self._poll(wait_s)
        if not events and not is_busy:
            self._move()
        return events

    # Parts

    def _arm(
        self, when: float, callback: Callable[..., Any], arguments: tuple[Any, ...], context: Context | None = None
    ) -> asyncio.TimerHandle:
        if when <= self.now_s:
            self.now_s += max(_TICK_S, math.ulp(self.now_s))
        timer = asyncio.TimerHandle(when, callback, list(arguments), self._loop, context)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def _pass(self) -> None:
        """As much as has passed elsewhere, if it does."""
        now_s = OS.monotonic_s()
        if self._passing:
            self.now_s += now_s - self._passed_at_s
        self._passed_at_s = now_s

    def _move(self) -> None:
        """To the next wait that ends, or to where the test wants to be."""
        self._forget_cancelled()
        until_s, _, done = self._targets[0]
        due_s = self._timers[0][0] if self._timers else math.inf
        if due_s <= until_s + _SAME_S:
            self.now_s = max(self.now_s, due_s)
            self._end_waits()
        else:
            self.now_s = max(self.now_s, until_s)
            heapq.heappop(self._targets)
            if not done.done():
                done.set_result(None)
        self._moved_at_s = OS.monotonic_s()

    def _end_waits(self) -> bool:
        """Those whose moment has come; whether there were any."""
        ended = False
        self._forget_cancelled()
        while self._timers and self._timers[0][0] <= self.now_s:
            _, _, timer = heapq.heappop(self._timers)
            self._loop.call_soon(_run_unless_cancelled, timer)
            self._forget_cancelled()
            ended = True
        return ended

    def _forget_cancelled(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)

    def _called(self, _: object) -> None:
        self._calls -= 1

    def _give_up(self) -> None:
        what = f"{self._calls} calls in threads did not end" if self._calls else "a wait that ended led to nothing"
        self.awaits_reaction = False
        while self._targets:
            _, _, done = heapq.heappop(self._targets)
            if not done.done():
                done.set_exception(AssertionError(f"time cannot pass on: {what} within {REACT_S:g} s"))


def _run_unless_cancelled(timer: asyncio.TimerHandle) -> None:
    if not timer.cancelled():
        timer._run()


@contextlib.contextmanager
def frozen_time() -> Iterator[FrozenTime]:
    """The app's time on the running event loop stands still within the block, but for what is let pass.

    Raises:
        ValueError: it is no event loop of asyncio's own.
    """
    loop: Any = asyncio.get_running_loop()
    if (time := getattr(loop, "busway_time", None)) is not None:  # another test bus on the same loop
        yield cast("FrozenTime", time)
        return
    if not isinstance(loop, asyncio.SelectorEventLoop):
        raise ValueError(
            f'clock="manual" moves the time of asyncio\'s own event loop; this one is {type(loop).__module__}.{type(loop).__name__}'
        )
    time = FrozenTime(loop)
    selector: Any = cast("Any", loop)._selector
    replaced = {
        "time": time.time,
        "call_at": time.call_at,
        "run_in_executor": time.run_in_executor,
        "machine": time.machine,
        "busway_time": time,
    }
    selector.select = time.select
    for name, value in replaced.items():
        setattr(loop, name, value)
    try:
        yield time
    finally:
        del selector.select
        for name in replaced:
            delattr(loop, name)
