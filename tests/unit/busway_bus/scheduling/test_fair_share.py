"""How the loop is shared: by hosts first, then by their connections."""

import asyncio
import gc
import weakref
from collections.abc import Generator
from dataclasses import replace

import pytest

from busway.net.machine import OS
from busway_bus.scheduling.fair_share import TURN_S, FairScheduler


@pytest.fixture
def clock() -> list[float]:
    """The time, which the work below moves."""
    return [0.0]


@pytest.fixture
def turns(clock: list[float]) -> FairScheduler:
    """By that clock."""
    return FairScheduler(replace(OS, monotonic_s=lambda: clock[0]))


async def test_one_connection_waits_for_one_turn_of_a_host_of_500(clock: list[float], turns: FairScheduler) -> None:
    """Each turn takes a whole round; the other host's comes after the first of them."""
    done = []

    def turn(name: str) -> None:
        done.append(name)
        clock[0] += 0.005

    for _ in range(500):
        turns.wait("many", lambda: turn("many"))
    turns.wait("one", lambda: turn("one"))
    rounds = 0
    while len(done) < 501:
        await asyncio.sleep(0)
        rounds += 1
    assert done[:2] == ["many", "one"]
    assert rounds >= 501


async def test_a_turn_is_short_while_others_wait(clock: list[float], turns: FairScheduler) -> None:
    """And goes on where no other waits, until the round is over."""
    turns_over = []

    def turn() -> None:
        turns_over.append(turns.over())
        clock[0] += TURN_S
        turns_over.append(turns.over())

    turns.wait("a", turn)
    turns.wait("a", turn)
    while len(turns_over) < 4:
        await asyncio.sleep(0)
    assert turns_over == [False, True, False, False]
    assert not turns.over()
    clock[0] += 0.005
    assert turns.over()
    for _ in range(2):
        await asyncio.sleep(0)
    assert not turns.over()


async def test_long_work_is_done_a_round_at_a_time(clock: list[float], turns: FairScheduler) -> None:
    """Another client's turn comes between; what it raises is raised, and what no task waits for is closed."""
    done = []

    def steps(name: str, count: int) -> Generator[None, None, str]:
        try:
            for _ in range(count):
                done.append(name)
                clock[0] += 0.003
                yield
            if name == "bad":
                raise ValueError(name)
        finally:
            done.append(f"{name} closed")
        return name

    assert await asyncio.gather(turns.run("a", steps("x", 4)), turns.run("b", steps("y", 2))) == ["x", "y"]
    assert done[:4] == ["x", "x", "y", "y"]
    with pytest.raises(ValueError, match="bad"):
        await turns.run("a", steps("bad", 1))
    task = asyncio.ensure_future(turns.run("a", steps("left", 9)))
    while "left" not in done:
        await asyncio.sleep(0)
    task.cancel()
    while "left closed" not in done:
        await asyncio.sleep(0)
    assert done.count("left") < 9


async def test_an_answer_goes_with_whoever_waited_for_it() -> None:
    """Not when garbage is collected: describing much left thirty megabytes each time."""

    class Answer:
        """Large."""

    def steps() -> Generator[None, None, Answer]:
        yield
        return Answer()

    gc.collect()
    gc.disable()
    try:
        kept = weakref.ref(await FairScheduler().run("here", steps()))
        await asyncio.sleep(0)  # until here the loop itself has it, which woke this test with it
        assert kept() is None
    finally:
        gc.enable()
