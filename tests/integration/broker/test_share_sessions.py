"""Share sessions on a real node: what becomes of a member's records where it opens another session, or uses one twice at a time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.integration.broker.share_probe import ShareRun, batch, share_run
from tests.integration.broker.test_share_fetch import shares_of
from tests.support.patience import patient
from tests.support.share_state import MemoryPersister

from busway_bus.share.manager import SharePartitions
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow


@pytest.fixture
def shares(cluster: LocalCluster) -> SharePartitions:
    """The node's."""
    return shares_of(cluster, MemoryPersister())


@pytest.fixture
async def run(cluster: LocalCluster, shares: SharePartitions) -> AsyncIterator[ShareRun]:
    """A topic, and who asks."""
    async with share_run(cluster.bootstrap_servers) as running:
        yield running


def last_answer(run: ShareRun) -> Any:
    """The last answer."""
    return run.log[-1][1]


async def test_who_is_refused_another_session_keeps_the_one_it_has(run: ShareRun, shares: SharePartitions) -> None:
    """It goes on with it, and what it has is free when its connection drops."""
    a, b = await run.member("a"), await run.member("b")
    await b.fetch("opens", wait_ms=0)
    await run.produce(batch(2))
    await a.fetch("takes")
    shares.sessions._partitions_max = 2
    await a.fetch("opens one that is too large", epoch=0, partitions=[0, 1], wait_ms=10)
    assert last_answer(run)[0] == "SHARE_SESSION_LIMIT_REACHED"
    await a.fetch("goes on", wait_ms=0)
    assert last_answer(run)[0] == "NONE"
    await a.client.__aexit__(None, None, None)
    while len(shares.sessions) > 1:
        await asyncio.sleep(0)
    await b.fetch("takes", wait_ms=9_000)
    assert last_answer(run)[2][0][3] == [(0, 1, 2)]


async def test_what_is_in_an_answer_that_is_refused_is_free_again(run: ShareRun, shares: SharePartitions) -> None:
    """No member has it: it is not delivered, and no member waits for the end of its lock."""
    a, twin, b = await run.member("a"), await run.member("a"), await run.member("b")
    await b.fetch("opens", wait_ms=0)
    await a.fetch("opens", wait_ms=0)
    waiting = asyncio.create_task(a.fetch("waits", wait_ms=9_000))
    session = shares.sessions.find("g", "a")
    while session.epoch < 2:
        await asyncio.sleep(0)
    await twin.fetch("goes on beside it", epoch=2, wait_ms=0)
    await run.produce(batch(2))
    await waiting
    assert last_answer(run)[0] == "INVALID_SHARE_SESSION_EPOCH"
    assert shares._held == 2
    await b.fetch("takes", wait_ms=500)
    assert last_answer(run)[2][0][3] == [(0, 1, 1)]


async def test_what_is_in_an_answer_that_is_refused_wakes_who_waits(run: ShareRun, shares: SharePartitions) -> None:
    """Another member that came later is given it at once."""
    a, twin, b = await run.member("a"), await run.member("a"), await run.member("b")
    await b.fetch("opens", wait_ms=0)
    await a.fetch("opens", wait_ms=0)
    waiting = asyncio.create_task(a.fetch("waits", wait_ms=9_000))
    session = shares.sessions.find("g", "a")
    while session.epoch < 2:
        await asyncio.sleep(0)
    await twin.fetch("goes on beside it", epoch=2, wait_ms=0)
    other = asyncio.create_task(b.fetch("waits", wait_ms=9_000))
    while shares.sessions.find("g", "b").epoch < 2:
        await asyncio.sleep(0)
    await run.produce(batch(2))
    await asyncio.wait_for(asyncio.gather(waiting, other), patient(5))
    assert [given for _, kept in run.log for partition in kept[2] for given in partition[3]] == [(0, 1, 1)]
