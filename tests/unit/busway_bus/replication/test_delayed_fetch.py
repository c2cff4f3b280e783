"""A fetch's wait: it ends once, by a partition or by its time, and leaves nothing behind."""

import asyncio
from typing import cast

import pytest
from tests.support.patience import patient

from busway_bus.replication.delayed_fetch import DelayedFetch
from busway_bus.replication.partition import Partition


class Waited:
    """What a wait sees of a partition."""

    def __init__(self) -> None:
        self.waiters: dict[DelayedFetch, None] = {}


class Fetch:
    """Waits for two partitions, of which the first is enough."""

    def __init__(self, timeout_s: float = 60.0) -> None:
        self.partitions = [cast("Partition", Waited()) for _ in range(2)]
        self.ends: list[Exception | None] = []
        self.wait = DelayedFetch(self.partitions, self._enough, self.ends.append, timeout_s)

    def _enough(self, partition: Partition) -> bool:
        return partition is self.partitions[0]

    @property
    def left_behind(self) -> bool:
        """Whether partitions still know it."""
        return any(partition.waiters for partition in self.partitions)


async def test_a_partition_that_is_enough_ends_it_once() -> None:
    """The fetch that moved the high watermark goes on first."""
    fetch = Fetch()
    first, second = fetch.partitions
    fetch.wait.look_at(second)
    await asyncio.sleep(0)
    assert (fetch.ends, fetch.wait.over) == ([], False)
    fetch.wait.look_at(first)
    assert (fetch.ends, fetch.wait.over, fetch.left_behind) == ([], True, False)
    fetch.wait.look_at(first)
    fetch.wait.end(OSError())
    await asyncio.sleep(0)
    assert fetch.ends == [None]


async def test_its_time_ends_it() -> None:
    """Without anything new."""
    fetch = Fetch(timeout_s=0.001)
    async with asyncio.timeout(patient(10)):
        while not fetch.ends:
            await asyncio.sleep(0)
    assert (fetch.ends, fetch.left_behind) == ([None], False)


@pytest.mark.parametrize("problem", [None, OSError("gone")])
async def test_who_lets_it_go_says_why(problem: Exception | None) -> None:
    """The client is gone, say."""
    fetch = Fetch()
    fetch.wait.end(problem)
    assert not fetch.left_behind
    await asyncio.sleep(0)
    assert fetch.ends == [problem]
