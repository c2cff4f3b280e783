"""Kills on request, and Ctrl-C, by themselves."""

import asyncio
import sys
import time
from pathlib import Path

import pytest
from kit.command import Interrupts, beside
from kit.kills import Busy, Kills, Target
from kit.monitor import sentence
from kit.parts import DemoFailed, Parts
from tests.support.patience import patient

from busway.admin.explanations import Rebalance, RebalanceReason

READY = "import time; print('ready', flush=True); time.sleep(600)"


async def test_a_part_is_killed_and_what_came_of_it_is_noted(tmp_path: Path) -> None:
    """One kill of a part at a time; another name of it is resolved when it is killed."""
    async with Parts(tmp_path) as parts, asyncio.timeout(patient(60)):
        part = await parts.start("service", sys.executable, "-c", READY)
        await part.line()

        async def after(begun: float) -> str:
            return f"noted {begun <= time.monotonic()}"

        kills = Kills()
        kills.add(Target("service", part, after=after))
        kills.aliases = {"leader": lambda: "service"}
        kills.kill("leader")
        with pytest.raises(Busy, match="service is being started again"):
            kills.kill("service")
        with pytest.raises(KeyError):
            kills.kill("nothing")
        await kills.settled()
        texts = [event.text.partition(" after")[0] for event in kills.events]
        assert texts[0] == "service: kill -9"
        # The note comes when its event does, not behind the restart.
        assert (sorted(texts[1:]), kills.counts) == (["noted True", "service is back"], {"service": 1})
        await kills.stop()


async def test_a_part_that_does_not_start_again_ends_the_demo(tmp_path: Path) -> None:
    """The first process leaves a mark that the second one refuses."""
    mark = tmp_path / "mark"
    code = f"import pathlib; pathlib.Path({str(mark)!r}).touch(exist_ok=False); {READY}"
    async with Parts(tmp_path) as parts, asyncio.timeout(patient(60)):
        part = await parts.start("bus", sys.executable, "-c", code)
        await part.line()
        kills = Kills()
        kills.add(Target("bus", part))
        kills.kill("bus")
        with pytest.raises(DemoFailed, match="bus ended at once"):
            await kills.settled()
        await kills.stop()


async def test_kills_end_while_a_part_is_away(tmp_path: Path) -> None:
    """What waits for the load to go on ends, too."""
    async with Parts(tmp_path) as parts, asyncio.timeout(patient(60)):
        part = await parts.start("bus", sys.executable, "-c", READY)
        await part.line()

        async def after(begun: float) -> None:
            await asyncio.get_running_loop().create_future()

        kills = Kills()
        kills.add(Target("bus", part, away_s=3600, after=after))
        kills.kill("bus")
        await asyncio.sleep(0)
        await kills.stop()
        assert kills.counts == {"bus": 1}


async def test_the_second_interrupt_hurries() -> None:
    """Work is waited for until then, and it is cancelled."""
    interrupts = Interrupts()
    assert await interrupts.until_stop(asyncio.sleep(0))
    work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(interrupts.until_stop(work))
    await asyncio.sleep(0)
    interrupts.interrupt()
    assert (await waiting, work.cancelled(), interrupts.hurry.is_set()) == (False, True, False)
    assert await interrupts.wait(asyncio.sleep(0), 60)
    interrupts.interrupt()
    assert not await interrupts.wait(asyncio.get_running_loop().create_future(), 60)


async def test_what_fails_beside_the_work_ends_it() -> None:
    """The first failure is raised; without one the background ends with the work."""
    failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    endless: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def of(future: "asyncio.Future[None]") -> None:
        await future

    failing.set_exception(DemoFailed("bus ended"))
    with pytest.raises(DemoFailed, match="bus ended"):
        await beside(of(endless), of(failing))
    assert endless.cancelled()
    background: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    await beside(asyncio.sleep(0), of(background))
    assert background.cancelled()


def test_a_rebalance_in_a_sentence() -> None:
    """Who, why, how long; of many reasons the first two."""
    joined = RebalanceReason("joined", "m-1", "gettaxi", "/127.0.0.1", "one", None)
    left = RebalanceReason("left", "m-2", "gettaxi", "/127.0.0.1", None, "the consumer is closed")
    rebalance = Rebalance(0, "classic", 3, 1, 12, [joined, left, joined], 0, [], True)
    assert sentence(rebalance) == "static member one joined; gettaxi left: the consumer is closed, took 12 ms"
