"""Waits that name their clock, where the app's is frozen."""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from busway.net.clock import APP_TIME, REAL_TIME, WAITS_IN, Time
from busway.testing.frozen_time import FrozenTime, frozen_time


@contextlib.contextmanager
def a_task_of_the_app() -> Iterator[FrozenTime]:
    """Freeze the time of this task, as if it descended from an app's start."""
    with frozen_time() as frozen:
        token = WAITS_IN.set(Time.USER)
        try:
            yield frozen
        finally:
            WAITS_IN.reset(token)


async def test_real_waits_end_although_time_is_frozen() -> None:
    """A sleep, a time-out, a moment, a wait for futures, a timer; none of them leaves a timer in the frozen clock."""
    with a_task_of_the_app() as frozen:
        never = asyncio.get_running_loop().create_future()
        await REAL_TIME.sleep(0.001)
        with pytest.raises(TimeoutError):
            async with REAL_TIME.timeout(0.001):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            async with REAL_TIME.timeout_at(REAL_TIME.now_s()):
                await asyncio.Event().wait()
        assert await REAL_TIME.wait([never], timeout=0.001) == (set(), {never})
        REAL_TIME.timer(0.001, never.set_result, None)
        await never
        assert frozen.left_s() is None
        assert WAITS_IN.get() is Time.USER


async def test_what_begins_in_a_block_keeps_its_clock() -> None:
    """A task inherits it, as connections and libraries' timers do."""
    with a_task_of_the_app() as frozen:
        with REAL_TIME.used():
            task = asyncio.create_task(asyncio.sleep(0.001))
        await task
        assert frozen.left_s() is None


async def test_waits_of_the_app_are_frozen_and_no_reaction() -> None:
    """Only a wait of the user's code shows that a handler was called again."""
    with a_task_of_the_app() as frozen:
        frozen.awaits_reaction = True
        async with APP_TIME.timeout(5):
            assert frozen.left_s() == 5
            assert frozen.awaits_reaction
        timer = asyncio.get_running_loop().call_later(7, print)
        assert frozen.left_s() == 7
        assert not frozen.awaits_reaction
        timer.cancel()


async def test_nothing_is_frozen_elsewhere() -> None:
    """Tasks that do not descend from the app's start keep real time by either clock."""
    with frozen_time() as frozen:
        await APP_TIME.sleep(0.001)
        with pytest.raises(TimeoutError):
            async with APP_TIME.timeout(0):
                await asyncio.Event().wait()
        assert frozen.left_s() is None
