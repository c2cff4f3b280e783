"""The time of an app under test, frozen until the test advances it.

Here: a second clock on one event loop; for its scope see `TestBus.advance`.
Not here: choosing the clock of a wait (`busway.net.clock`), its use by a test bus (`clock`).

Since clients, broker and registry keep real time, joining a group, reconnecting and heartbeats need no `advance`. A
timer belongs to the app where `WAITS_IN` of its context is not `Time.REAL`; tasks inherit it from the app's start.
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
"""Limit on the app's reaction to due waits, in real time."""
_CALM_S: Final = 0.001
"""Silence on all sockets required before time advances."""
_BRIEF_S: Final = 0.02
"""A real timer due this soon delays the advance, such as a producer's batch."""
_BRIEF_MAX_S: Final = 0.2
"""Longest delay by a chain of such timers."""
_SAME_S: Final = 1e-6
"""Closer moments count as equal, because sums of floats are inexact."""
_TICK_S: Final = 1e-9
"""Advance by a wait that is over already; a rest too small to add would otherwise loop forever."""


class FrozenTime:
    """The app's clock while installed on an event loop.

    `now_s` is the app's `loop.time()`. `awaits_reaction`: a wait between attempts has ended without any effect so far.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now_s: float = float(math.ceil(loop.time()))
        self.awaits_reaction: bool = False
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
        self.machine: Machine = Machine(wall_ms=OS.wall_ms, monotonic_s=self.time, uuid4=OS.uuid4, chance=OS.chance)

    # For the test

    async def advance(self, seconds: float) -> None:
        """End waits in order, each after everything due before it; new ones may end, too.

        Raises:
            AssertionError: due work was not done within `REACT_S`.
        """
        done = self._loop.create_future()
        self._moved_at_s = OS.monotonic_s()
        heapq.heappush(self._targets, (self.now_s + seconds, next(self._order), done))
        await done

    async def sleep(self, seconds: float) -> None:
        done = self._loop.create_future()
        timer = self._arm(self.now_s + seconds, lambda: done.done() or done.set_result(None), ())
        try:
            await done
        finally:
            timer.cancel()

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """Run the app's time in real time, for start and stop."""
        self._pass()
        self._passing += 1
        try:
            yield
        finally:
            self._pass()
            self._passing -= 1

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """As `passing`; tasks created within belong to the app."""
        token = WAITS_IN.set(Time.USER)
        try:
            with self.passing():
                yield
        finally:
            WAITS_IN.reset(token)

    def left_s(self) -> float | None:
        self._forget_cancelled()
        return self._timers[0][0] - self.now_s if self._timers else None

    def even(self) -> float:
        self.now_s = float(math.ceil(self.now_s))
        return self.now_s

    # Replacements of the loop's methods

    def time(self) -> float:
        if WAITS_IN.get() is Time.REAL:
            return self._real_time()
        self._pass()
        return self.now_s

    def call_at(
        self, when: float, callback: Callable[..., Any], *arguments: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        waits_in = WAITS_IN.get()
        if waits_in is not Time.REAL:
            if waits_in is Time.USER:
                self.awaits_reaction = False  # the handler was called again and waits
            self._pass()
            return self._arm(when, callback, arguments, context)
        timer = self._real_call_at(when, callback, *arguments, context=context)
        if when - self._real_time() <= _BRIEF_S:
            self._brief.append(timer)
        return timer

    def run_in_executor(self, executor: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        """Let time stand until the call has ended."""
        future = self._real_executor(executor, function, *arguments)
        self._calls += 1
        future.add_done_callback(self._called)
        return future

    def select(self, timeout: float | None) -> list[Any]:
        """Replace `selector.select`: without ready sockets, time advances to the test's target."""
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
        now_s = OS.monotonic_s()
        if self._passing:
            self.now_s += now_s - self._passed_at_s
        self._passed_at_s = now_s

    def _move(self) -> None:
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
    """Freeze the app's time on the running event loop within the block.

    `ValueError` unless it is asyncio's selector loop.
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
