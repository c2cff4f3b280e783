"""Share groups on a real node: they survive kills, go on as they were, and Kafka's tool for them works."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.integration.broker.groups_probe import DEADLINE_S
from tests.integration.broker.share_groups_probe import SETTINGS, SharesRun, members, offsets, shares_against
from tests.support.apache_kafka import java

from busway_bus.coordinator.share_group_coordinator import BEGINNING_AT_ONCE, ShareGroups
from busway_bus.kernel.topics import SHARE_STATE_TOPIC
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from busway_protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState

TOOL = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"


async def joined(run: SharesRun, member: str = "m", count: int = 2) -> int:
    """A member that has all of topic `read`; its epoch."""
    answer = await run.heartbeat("", member, 0, ["read"])
    return await run.until_assigned(member, answer.member_epoch, count)


async def test_every_answer_is_given_whatever_is_asked() -> None:
    """The scenarios that are compared with Kafka's answers."""
    async with LocalCluster(properties=SETTINGS) as cluster:
        for scenario in (members, offsets):
            async with shares_against(cluster.bootstrap_servers) as run:
                await scenario(run)


async def test_a_group_survives_a_kill() -> None:
    """Its members go on in their epochs, with what they have, and its offsets are the same."""
    async with LocalCluster(properties=SETTINGS) as cluster:
        async with shares_against(cluster.bootstrap_servers) as run:
            await run.prepare()
            epoch = await joined(run)
            await run.alter("", {"left": {0: 4}}, "other")
            before = await run.described("", "g", "other")
            starts = await run.offsets("", "other")
        await cluster.crash()
        await cluster.start()
        async with shares_against(cluster.bootstrap_servers) as run:
            await run.prepare()
            assert await run.described("", "g", "other") == before
            assert await run.offsets("", "other") == starts
            answer = await run.heartbeat("", "m", epoch)
            assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, epoch, None)


async def test_a_deleted_topic_leaves_the_group() -> None:
    """With its share partitions; a topic of the same name is another one."""
    async with LocalCluster(properties=SETTINGS) as cluster, shares_against(cluster.bootstrap_servers) as run:
        await run.prepare()
        epoch = await joined(run)
        old = run.topic_ids["read"]
        await run.admin.request(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="read")], topic_names=[], timeout_ms=9_000)
        )
        epoch = await run.until_assigned("m", epoch, 0)
        assert not (await run.offsets("")).groups[0].topics
        await run.prepare()
        assert run.topic_ids["read"] != old
        await run.until_assigned("m", epoch, 2)
        (topic,) = (await run.members("g"))["m"].assignment.topic_partitions
        assert topic.topic_id == run.topic_ids["read"]
        assert cluster.node is not None
        shards = cluster.node.services.share_states.runtime.all_shards().values()
        assert {key.topic_id for shard in shards for key in shard.partitions} == {run.topic_ids["read"]}


async def test_a_deleted_group_leaves_nothing() -> None:
    """Neither with the group coordinator nor with the share coordinator."""
    async with LocalCluster(properties=SETTINGS) as cluster, shares_against(cluster.bootstrap_servers) as run:
        await run.prepare()
        await joined(run)
        await run.heartbeat("", "m", -1)
        await run.delete("", "g")
        assert cluster.node is not None
        shards = cluster.node.services.share_states.runtime.all_shards().values()
        assert not any(shard.partitions for shard in shards)
        assert not cluster.node.services.groups.groups()


@asynccontextmanager
async def none_begun(groups: ShareGroups) -> AsyncIterator[None]:
    """What begins waits for its turn."""
    for _ in range(BEGINNING_AT_ONCE):
        await groups._semaphore.acquire()
    try:
        yield
    finally:
        for _ in range(BEGINNING_AT_ONCE):
            groups._semaphore.release()


async def test_nothing_is_begun_of_a_deleted_group() -> None:
    """What is being begun while it is deleted is forgotten, too: a group of the same name would be fenced by it."""
    async with LocalCluster(properties=SETTINGS) as cluster, shares_against(cluster.bootstrap_servers) as run:
        await run.prepare()
        await run.alter("", {"left": {0: 0}}, "other")
        assert cluster.node is not None
        groups = cluster.node.services.share_groups
        async with none_begun(groups):
            await run.heartbeat("", "m", 0, ["left"])
            await run.heartbeat("", "n", 0, ["read"])
            for member in ("m", "n"):
                await run.heartbeat("", member, -1)
            deleting = asyncio.ensure_future(groups.delete("g"))
            while not groups._deleting:
                await asyncio.sleep(0)
            await groups.describe("g")
            with pytest.raises(KafkaError) as refusal:
                await groups.alter_offsets("g", {})
            assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await deleting is ErrorCode.NONE
        while groups._initializing:
            await asyncio.sleep(0)
        shards = cluster.node.services.share_states.runtime.all_shards().values()
        assert {key.group_id for shard in shards for key in shard.partitions} == {"other"}
        await joined(run)


async def test_offsets_that_are_being_set_are_forgotten_with_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sets them may be answered that they are set; the group of the same name does not go on from there."""
    async with LocalCluster(properties=SETTINGS) as cluster, shares_against(cluster.bootstrap_servers) as run:
        await run.prepare()
        await run.alter("", {"read": {0: 3}})
        assert cluster.node is not None
        groups, states = cluster.node.services.share_groups, cluster.node.services.share_states
        gate, asked, initialize = asyncio.Event(), asyncio.Event(), states.initialize

        async def slow(*given: Any, **named: Any) -> None:
            asked.set()
            await gate.wait()
            await initialize(*given, **named)

        monkeypatch.setattr(states, "initialize", slow)
        altering = asyncio.ensure_future(groups.alter_offsets("g", {run.topic_ids["read"]: ("read", {0: 4})}))
        await asked.wait()
        deleting = asyncio.ensure_future(groups.delete("g"))
        while not groups._deleting:
            await asyncio.sleep(0)
        await groups.describe("g")
        await run.listed("")
        gate.set()
        assert await deleting is ErrorCode.NONE
        assert await altering == {}
        assert not any(shard.partitions for shard in states.runtime.all_shards().values())


async def test_a_session_ends() -> None:
    """A member that is not heard of is out, and the others get what it had."""
    settings = {
        **SETTINGS,
        "group.share.heartbeat.interval.ms": "100",
        "group.share.min.heartbeat.interval.ms": "100",
        "group.share.min.session.timeout.ms": "300",
        "group.share.session.timeout.ms": "300",
    }
    async with LocalCluster(properties=settings) as cluster, shares_against(cluster.bootstrap_servers) as run:
        await run.prepare()
        await run.heartbeat("", "silent", 0, ["read"])
        epoch = await joined(run, count=1)
        await run.until_assigned("m", epoch, 2)
        assert list(await run.members("g")) == ["m"]


async def test_a_share_group_has_no_committed_offsets() -> None:
    """There are none to describe, and none are taken."""
    async with LocalCluster(properties=SETTINGS) as cluster, shares_against(cluster.bootstrap_servers) as run:
        await run.prepare()
        await joined(run)
        wanted = OffsetFetchRequestGroup(group_id="g", topics=None)
        answer = await run.admin.request(OffsetFetchRequest(groups=[wanted], require_stable=False))
        assert (answer.groups[0].error_code, answer.groups[0].topics) == (ErrorCode.NONE, [])
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        topic = OffsetCommitRequestTopic(name="read", topic_id=run.topic_ids["read"], partitions=[partition])
        commit = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[topic])
        answer = await run.admin.request(commit)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.java
@pytest.mark.slow
async def test_kafkas_tool_works() -> None:
    """kafka-share-groups lists, describes (offsets with their lag, state, members), resets and deletes."""
    async with LocalCluster(properties=SETTINGS) as cluster, shares_against(cluster.bootstrap_servers) as run:
        await run.prepare()
        await run.produce("read", 9)
        await joined(run)

        async def tool(*arguments: str) -> str:
            return await asyncio.to_thread(java, TOOL, "--bootstrap-server", cluster.bootstrap_servers, *arguments)

        async with asyncio.timeout(5 * DEADLINE_S):
            assert "g" in (await tool("--list")).split()
            assert "Stable" in await tool("--describe", "--group", "g", "--state")
            described = await tool("--describe", "--group", "g", "--members")
            assert "read:0,1" in described.replace(" ", "")
            await run.heartbeat("", "m", -1)
            reset = ("--reset-offsets", "--group", "g", "--topic", "read", "--to-earliest", "--execute")
            assert "read" in await tool(*reset)
            rows = [line.split() for line in (await tool("--describe", "--group", "g")).splitlines()]
            assert ["g", "read", "0", "0", "9"] in [row[:5] for row in rows]
            await tool("--delete-offsets", "--group", "g", "--topic", "read")
            assert not (await run.offsets("")).groups[0].topics
            await tool("--delete", "--group", "g")
            assert "g" not in (await tool("--list")).split()
        assert cluster.node is not None
        assert SHARE_STATE_TOPIC in cluster.node.services.image.topics
