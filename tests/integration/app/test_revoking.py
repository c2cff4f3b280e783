"""What an app still does for a partition that it gives up, and what it does not do any more."""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import pytest
from tests.support.patience import patient, patient_ms
from tests.support.proxy import Fate, Proxy

from busway import Admin, App, TopicPartition
from busway.consumer.group import GroupMember
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey

pytestmark = pytest.mark.slow
EAGER = {
    "heartbeat_interval_ms": 20,
    "session_timeout_ms": patient_ms(10_000),
    "partition_assignment_strategy": ("range",),  # gives up even what comes back
}
THINGS = TopicPartition("things", 0)


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """The way to a node."""
    async with LocalCluster() as node, Proxy(node.bootstrap_servers) as running:
        yield running


def group_of(app: App) -> GroupMember:
    """The app as its group's member."""
    assert app.worker is not None
    membership = app.worker.consumer._group
    assert membership is not None
    return membership


async def committed(proxy: Proxy, group: str) -> int | None:
    """How far the group is."""
    async with Admin(proxy.target) as admin:
        committed_offset = (await admin.list_group_offsets(group)).get(THINGS)
    return committed_offset.offset if committed_offset is not None else None


async def test_a_revoke_waits_for_what_was_sent(proxy: Proxy) -> None:
    """A record whose results are not acknowledged is not finished: the group waits, and then the record is committed with them."""
    app = App("revoked", proxy.address, consumer=EAGER, commit_interval_s=600)
    things = app.topic("things", value=int, format="json", partitions=1)
    results = app.topic("results", value=int, format="json", partitions=1)

    @app.subscribe(things)
    async def handle(value: int) -> None:
        await app.send_soon(results, value)

    async with app, asyncio.timeout(patient(20)):
        await things.send(1)
        assert app.worker is not None
        while app.worker.handled < 1:
            await app.worker.progress.wait()
            app.worker.progress.clear()
        held = proxy.strike(Fate.HOLD, ApiKey.PRODUCE, answers=True)
        sent = asyncio.ensure_future(things.send(2))
        await held.happened.wait()  # the answer for the event; the handler's result is behind it
        joins = proxy.requests.count(ApiKey.JOIN_GROUP)
        while app.worker.consumer._fetcher.assigned[THINGS].position != 2:
            await asyncio.sleep(0.01)
        while not any(lane.sending() for assigned in app.worker._assigned.values() for lane in assigned.lanes):
            await asyncio.sleep(0.01)
        group_of(app).subscribe(["things"])
        while not app.worker._closing.locked():
            await asyncio.sleep(0.01)
        heartbeats = proxy.requests.count(ApiKey.HEARTBEAT)
        await proxy.asked(ApiKey.HEARTBEAT, heartbeats + 5)  # it lives, and has given up nothing
        assert proxy.requests.count(ApiKey.JOIN_GROUP) == joins
        assert await committed(proxy, "revoked") is None
        held.lift()
        await sent
        await proxy.asked(ApiKey.JOIN_GROUP, joins + 1)
        assert await committed(proxy, "revoked") == 2


async def test_a_partition_that_has_gone_is_not_committed_again(proxy: Proxy) -> None:
    """Not even by a round of commits that was waiting for its turn when the partition went."""
    app = App("revoked", proxy.address, consumer=EAGER, commit_interval_s=0.05)
    things = app.topic("things", value=int, format="json", partitions=1)

    @app.subscribe(things)
    async def handle(value: int) -> None:
        pass

    async with app, asyncio.timeout(patient(20)):
        assert app.worker is not None
        while not app.worker._assigned:
            await asyncio.sleep(0.01)
        async with app.worker._commits._committing:
            await things.send(1)
            while not app.worker.handled or not app.worker._commits._committing._waiters:  # type: ignore[attr-defined]
                await asyncio.sleep(0.01)
            (gone,) = app.worker._take([THINGS])
        async with app.worker._commits._committing:
            assert gone.closing
        assert await committed(proxy, "revoked") is None


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
async def test_what_comes_while_a_partition_is_given_up_is_not_committed(
    proxy: Proxy, guarantee: Literal["at_least_once", "exactly_once"]
) -> None:
    """The group waits for a handler; a record that is fetched meanwhile is handled by the next owner."""
    app = App("revoked", proxy.address, consumer=EAGER, commit_interval_s=600)
    things = app.topic("things", value=int, format="json", partitions=1)
    begun, goes_on, handled = asyncio.Event(), asyncio.Event(), list[int]()

    @app.subscribe(things, guarantee=guarantee)
    async def handle(value: int) -> None:
        begun.set()
        await goes_on.wait()
        handled.append(value)

    async with app, asyncio.timeout(patient(20)):
        await things.send(1)
        await begun.wait()
        assert app.worker is not None
        joins = proxy.requests.count(ApiKey.JOIN_GROUP)
        group_of(app).subscribe(["things"])
        while not app.worker._closing.locked():
            await asyncio.sleep(0.01)
        await things.send(2)
        while app.worker.consumer._fetcher.assigned[THINGS].position != 2:
            await asyncio.sleep(0.01)
        goes_on.set()
        await proxy.asked(ApiKey.JOIN_GROUP, joins + 1)
        assert await committed(proxy, "revoked") == 1
        while handled != [1, 2]:
            await asyncio.sleep(0.01)
