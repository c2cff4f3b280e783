"""Offsets of a share group that are set, deleted with it or with its topic while members have its records or wait for some."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.integration.broker.share_probe import ShareRun, batch, share_run
from tests.integration.broker.share_states_probe import SETTINGS
from tests.support.patience import patient_ms

import busway
from busway import TopicPartition
from busway_bus.groups.share.heartbeat import ShareHeartbeat
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode, KafkaError

pytestmark = pytest.mark.slow
PLACE = TopicPartition("t", 0)
LONG_MS = patient_ms(20_000)


@asynccontextmanager
async def running() -> AsyncIterator[tuple[LocalCluster, ShareRun, busway.Admin]]:
    """A broker with a topic of four records, and a group that begins with the first."""
    async with (
        LocalCluster(properties=SETTINGS) as cluster,
        share_run(cluster.bootstrap_servers) as run,
        busway.Admin(cluster.bootstrap_servers) as admin,
    ):
        for _ in range(4):
            await run.produce(batch(1))
        await begin(admin, 0)
        yield cluster, run, admin


async def begin(admin: busway.Admin, offset: int) -> None:
    """Have the group go on there."""
    await admin.alter_share_group_offsets("g", {PLACE: offset})


def last_answer(run: ShareRun) -> Any:
    """The last answer."""
    return run.log[-1][1]


async def take(run: ShareRun, member: Any) -> list[tuple[int, int, int]]:
    """What a member is given; a partition that was begun again is asked for once more, as every client does."""
    for _ in range(2):
        await member.fetch("takes", wait_ms=500)
        if last_answer(run)[2] and last_answer(run)[2][0][1] == "NONE":
            break
    return [given for partition in last_answer(run)[2] for given in partition[3]]


async def test_who_has_records_when_offsets_are_altered() -> None:
    """What it says of them is of before, and holds no more; it is given what the group gets again."""
    async with running() as (_, run, admin):
        a = await run.member("a")
        await a.fetch("takes all")
        await a.acknowledge("has done with three", (0, 2, [1]))
        await begin(admin, 1)
        await a.acknowledge("comes too late with the fourth", (3, 3, [1]))
        assert last_answer(run)[1] != [(0, "NONE")]
        assert await take(run, a) == [(1, 3, 1)]
        await a.acknowledge("has done with them", (1, 3, [1]))
        assert last_answer(run) == ("NONE", [(0, "NONE")])
        assert (await admin.list_share_group_offsets("g"))[PLACE].lag == 0


async def test_who_waits_when_offsets_are_altered() -> None:
    """It is answered at once, not when its time is over, and is given what the group gets again."""
    async with running() as (_, run, admin):
        a = await run.member("a")
        await a.fetch("takes all")
        await a.acknowledge("has done with all", (0, 3, [1]))
        waiting = asyncio.create_task(a.fetch("waits", wait_ms=LONG_MS))
        await begin(admin, 2)
        async with asyncio.timeout(LONG_MS / 2000):
            await waiting
        assert [given for partition in last_answer(run)[2] for given in partition[3]] in ([], [(2, 3, 1)])
        if not last_answer(run)[2][0][3]:
            assert await take(run, a) == [(2, 3, 1)]


async def test_who_waits_when_the_group_is_deleted() -> None:
    """It gets the error at once; a group of the same name knows nothing of this one, whatever is said in the name of its members."""
    async with running() as (_, run, admin):
        for _ in range(3):
            await begin(admin, 0)  # so that the group's epoch is beyond that of the next one
        a, b = await run.member("a"), await run.member("b")
        await a.fetch("takes all")
        await b.fetch("opens", wait_ms=0)
        waiting = asyncio.create_task(b.fetch("waits", wait_ms=LONG_MS))
        await admin.delete_groups(["g"])
        async with asyncio.timeout(LONG_MS / 2000):
            await waiting
        assert last_answer(run)[2][0][1] in {"NOT_LEADER_OR_FOLLOWER", "UNKNOWN_SERVER_ERROR"}
        await begin(admin, 0)
        await a.acknowledge("speaks of the group before", (0, 3, [1]))
        assert last_answer(run)[1] != [(0, "NONE")]
        assert await take(run, b) == [(0, 3, 1)]


async def test_who_has_records_when_the_topic_is_made_anew() -> None:
    """A topic of the same name is another one: nothing that is said of the old one holds for it, and it is shared from its beginning."""
    async with running() as (_, run, admin):
        a = await run.member("a")
        await a.fetch("takes all")
        old = run.topic_id
        await admin.delete_topics(["t"])
        await run.prepare(partitions=1)
        assert run.topic_id != old
        await run.produce(batch(2))
        await begin(admin, 0)
        await a.acknowledge("speaks of the old one", (0, 3, [1]), topic_id=old)
        assert last_answer(run) == ("NONE", [(0, "UNKNOWN_TOPIC_ID")])
        b = await run.member("b")
        assert await take(run, b) == [(0, 1, 1)]
        await b.acknowledge("has done with one", (0, 0, [1]))


async def test_nobody_joins_a_group_that_is_being_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletion would be answered that it is not empty, and what it was done with would be given again."""
    async with running() as (cluster, _, admin):
        services = cluster.node.services
        persister = services.share_groups._persister
        asked, may = asyncio.Event(), asyncio.Event()
        forget = persister.delete

        async def delete(key: Any) -> None:
            asked.set()
            await may.wait()
            await forget(key)

        monkeypatch.setattr(persister, "delete", delete)
        deleting = asyncio.create_task(services.share_groups.delete("g"))
        await asked.wait()
        join = ShareHeartbeat(group_id="g", member_id="m", epoch=0, topics=frozenset({"t"}))
        with pytest.raises(KafkaError, match=r"^COORDINATOR_LOAD_IN_PROGRESS: share group g is being deleted"):
            await services.share_groups.heartbeat(join)
        may.set()
        assert await deleting is ErrorCode.NONE
        assert "g" not in {group.group_id for group in await admin.list_groups()}
        assert (await services.share_groups.heartbeat(join)).epoch > 0


async def test_nobody_joins_a_group_whose_offsets_are_being_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a member has begun would be forgotten with the rest, while the group says that it is begun: no fetch would ever find it."""
    async with running() as (cluster, run, _):
        services = cluster.node.services
        groups, persister = services.share_groups, services.share_groups._persister
        asked, may = asyncio.Event(), asyncio.Event()
        forget = persister.delete

        async def delete(key: Any) -> None:
            asked.set()
            await may.wait()
            await forget(key)

        monkeypatch.setattr(persister, "delete", delete)
        deleting = asyncio.create_task(groups.delete_offsets("g", [run.topic_id]))
        await asked.wait()
        join = ShareHeartbeat(group_id="g", member_id="m", epoch=0, topics=frozenset({"t"}))
        with pytest.raises(
            KafkaError, match=r"^COORDINATOR_LOAD_IN_PROGRESS: share group g is being deleted, or offsets"
        ):
            await groups.heartbeat(join)
        with pytest.raises(KafkaError, match=r"^COORDINATOR_LOAD_IN_PROGRESS"):
            await groups.alter_offsets("g", {run.topic_id: ("t", {0: 1})})
        may.set()
        assert await deleting == {run.topic_id: None}
        assert await groups.initialized("g") == {}
        await groups.heartbeat(join)
        while groups._initializing:
            await asyncio.sleep(0)
        assert await groups.initialized("g") == {run.topic_id: frozenset({0, 1})}
        await take(run, await run.member("a"))
        assert last_answer(run)[2][0][1] == "NONE"


async def test_offsets_that_are_being_set_are_deleted_after_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the same time: what is forgotten would be said to be begun."""
    async with running() as (cluster, run, _):
        services = cluster.node.services
        groups, persister = services.share_groups, services.share_groups._persister
        asked, may = asyncio.Event(), asyncio.Event()
        begin_one, done = persister.initialize, []

        async def initialize(key: Any, **named: Any) -> None:
            asked.set()
            await may.wait()
            await begin_one(key, **named)
            done.append("set")

        forget = persister.delete

        async def delete(key: Any) -> None:
            done.append("deleted")
            await forget(key)

        monkeypatch.setattr(persister, "initialize", initialize)
        monkeypatch.setattr(persister, "delete", delete)
        altering = asyncio.create_task(groups.alter_offsets("g", {run.topic_id: ("t", {0: 2})}))
        await asked.wait()
        deleting = asyncio.create_task(groups.delete_offsets("g", [run.topic_id]))
        while not groups._deleting:
            await asyncio.sleep(0)
        await groups.describe("g")
        may.set()
        assert await altering == {}
        assert await deleting == {run.topic_id: None}
        assert done == ["set", "deleted"]
        assert await groups.initialized("g") == {}
