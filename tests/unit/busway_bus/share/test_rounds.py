"""Rounds of the event loop: one for each who waits."""

import asyncio

from tests.support.patience import patient

from busway_bus.share.rounds import Rounds


class Ticks:
    """Counts rounds of the loop."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self.count += 1
        self._loop.call_soon(self._tick)


async def test_each_has_a_round_by_itself_in_order() -> None:
    """Who goes away while it waits takes no other's."""
    rounds, ticks = Rounds(), Ticks()
    had: list[tuple[int, int]] = []

    async def work(number: int) -> None:
        for _ in range(2):
            await rounds.turn()
            had.append((ticks.count, number))

    workers = [asyncio.create_task(work(number)) for number in range(4)]
    await asyncio.sleep(0)
    workers[1].cancel()
    await asyncio.wait(workers)
    assert [number for _, number in had] == [0, 2, 3, 0, 2, 3]
    assert len({at for at, _ in had}) == len(had)
    await asyncio.wait_for(rounds.turn(), patient(10))
