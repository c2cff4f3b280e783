"""Simulated work in threads: one step, some time after its submission."""

import asyncio

import pytest

from busway_bus.testing.world import World


def test_work_takes_virtual_time_and_gives_its_outcome() -> None:
    """A result or an error; the loop goes on meanwhile."""

    async def workload(world: World) -> None:
        loop, began = asyncio.get_running_loop(), world.now
        working = loop.run_in_executor(None, lambda: 5)
        await asyncio.sleep(0)
        assert not working.done()
        assert await working == 5
        assert world.now > began
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)

    World(1).run(workload)
