"""Members whose connection is closed, at moments when little is known of them: which are fenced, and after how long a wait."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

import pytest
from tests.integration.broker.test_disconnects import join
from tests.support.patience import patient
from tests.support.raw_client import RawClient, frame
from tests.support.waiting import until

from busway_bus.coordinator.group_coordinator import GroupCoordinator
from busway_bus.coordinator.member_connections import RECONNECT_MS
from busway_bus.groups.classic.group import ClassicGroup
from busway_bus.groups.modern.consumer_group import ConsumerGroup
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.messages.groups_classic import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from busway_protocol.messages.groups_modern import ConsumerGroupHeartbeatRequest
from busway_protocol.messages.transactions import TxnOffsetCommitRequest

SESSION_MS = 30_000
AT_ONCE = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    """One node that keeps all groups in one partition."""
    async with LocalCluster(properties=AT_ONCE) as running:
        yield running


@contextlib.contextmanager
def waits_of(groups: GroupCoordinator) -> Iterator["asyncio.Queue[float]"]:
    """How long closed connections are waited for, in seconds; no member is fenced meanwhile."""
    waits: asyncio.Queue[float] = asyncio.Queue()

    def noted(delay_s: float, callback: Callable[..., None], *arguments: object) -> asyncio.TimerHandle:
        waits.put_nowait(delay_s)
        return asyncio.get_running_loop().call_later(1_000_000, callback, *arguments)

    groups.connections._call_later = noted
    yield waits
    groups.connections.close()


def groups_of(cluster: LocalCluster) -> GroupCoordinator:
    """The coordinator of the only node."""
    assert cluster.node is not None
    return cluster.node.services.groups


def members_of(groups: GroupCoordinator, group_id: str) -> list[str]:
    """The ids of a group's members, and those that were handed out."""
    group = groups.group(group_id)
    if isinstance(group, ClassicGroup):
        return [*group.members, *group.roster.pending]
    return list(group.members) if isinstance(group, ConsumerGroup) else []


def joining(group_id: str) -> JoinGroupRequest:
    """A new member that wants to join."""
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id="",
        protocol_type="test",
        protocols=[JoinGroupRequestProtocol(name="p", metadata=b"")],
    )


@pytest.mark.parametrize("heartbeats", [0, 1])
async def test_an_interval_that_is_not_known_yet_may_be_a_third_of_the_session(
    cluster: LocalCluster, heartbeats: int
) -> None:
    """Before the second heartbeat: one and a half times that are waited."""
    async with RawClient(cluster.bootstrap_servers) as client:
        await client.find_coordinator("g")
        with waits_of(groups_of(cluster)) as waits:
            member = await join(client, "g")
            for _ in range(heartbeats):
                beat = HeartbeatRequest(
                    group_id="g", generation_id=member.generation_id, member_id=member.member_id, group_instance_id=None
                )
                await client.ask(beat, 3)
            await client.__aexit__(None, None, None)
            wait_s = await asyncio.wait_for(waits.get(), patient(10))
            assert SESSION_MS / 2000 - patient(10) < wait_s <= SESSION_MS / 2000
            assert wait_s > 4.5


async def test_a_member_that_never_learned_its_id_is_fenced_after_the_grace(cluster: LocalCluster) -> None:
    """A client of JoinGroup 0 to 3 dies while its first join waits for the others: no client can come back with that id."""
    async with RawClient(cluster.bootstrap_servers) as stays:
        await stays.find_coordinator("g")
        groups = groups_of(cluster)
        member = await join(stays, "g")
        with waits_of(groups) as waits:
            async with RawClient(cluster.bootstrap_servers) as dies:
                dies.send(frame(joining("g"), 2))
                await dies.drained()
                await until(lambda: len(members_of(groups, "g")) == 2, pause_s=0)
            assert await asyncio.wait_for(waits.get(), patient(10)) == 3.0
            assert groups.connections.carries(("g", member.member_id))


@pytest.mark.parametrize("reset", [False, True])
async def test_a_reset_connection_is_waited_for_longer_than_a_closed_one(cluster: LocalCluster, reset: bool) -> None:
    """The sockets of a killed process are closed; a reset comes from the network, and the client connects again."""
    beat = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="member-1",
        member_epoch=0,
        rebalance_timeout_ms=SESSION_MS,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    async with RawClient(cluster.bootstrap_servers) as client:
        await client.find_coordinator("g")
        with waits_of(groups_of(cluster)) as waits:
            await client.ask(beat, 1)
            if reset:
                client.reset()
            await client.__aexit__(None, None, None)
            wait_s = await asyncio.wait_for(waits.get(), patient(10))
            assert wait_s == RECONNECT_MS / 1000 + 3.0 if reset else wait_s <= 7.5


@pytest.mark.parametrize("version", [2, 5])
async def test_a_join_that_is_served_after_its_client_has_died_leaves_no_member(version: int) -> None:
    """One that waits for the others, and one that is handed an id: the request was on its way while the connection ended."""
    properties = {**AT_ONCE, "group.disconnect.grace.ms": "1"}
    async with LocalCluster(properties=properties) as cluster, RawClient(cluster.bootstrap_servers) as stays:
        await stays.find_coordinator("g")
        groups = groups_of(cluster)
        member = await join(stays, "g")
        async with RawClient(cluster.bootstrap_servers) as dies:
            dies.send(frame(joining("g"), 2) + frame(joining("g"), version))  # served when the first is over
            await dies.drained()
            await until(lambda: len(members_of(groups, "g")) == 2, pause_s=0)
        await until(lambda: members_of(groups, "g") == [member.member_id], pause_s=0)


async def test_a_consumer_group_member_that_dies_before_its_join_is_durable_is_fenced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first heartbeat is answered after its connection has ended."""
    properties = {**AT_ONCE, "group.disconnect.grace.ms": "1", "group.consumer.heartbeat.interval.ms": "5"}
    properties["group.consumer.min.heartbeat.interval.ms"] = "1"
    async with LocalCluster(properties=properties) as cluster, RawClient(cluster.bootstrap_servers) as first:
        await first.find_coordinator("g")
        groups = groups_of(cluster)
        async with RawClient(cluster.bootstrap_servers) as dies:
            beat = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="member-1",
                member_epoch=0,
                rebalance_timeout_ms=SESSION_MS,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            )
            left = asyncio.Event()
            durably = groups.consumer_heartbeat

            async def late(group_id: str, request: object) -> object:
                answer = await durably(group_id, request)  # type: ignore[arg-type]
                await left.wait()
                return answer

            monkeypatch.setattr(groups, "consumer_heartbeat", late)
            dies.send(frame(beat, 1))
            await dies.drained()
            await until(lambda: members_of(groups, "g") == ["member-1"], pause_s=0)
        await until(lambda: not groups.connections.carries(("g", "member-1")), pause_s=0)
        left.set()
        await until(lambda: members_of(groups, "g") == [], pause_s=0)


async def test_a_heartbeat_that_waits_for_the_disk_keeps_its_member(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer group's member comes back in time; the grace must not end while its heartbeat waits to become durable."""
    beat = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="member-1",
        member_epoch=0,
        rebalance_timeout_ms=SESSION_MS,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    async with RawClient(cluster.bootstrap_servers) as first, RawClient(cluster.bootstrap_servers) as second:
        await first.find_coordinator("g")
        groups = groups_of(cluster)
        joined = await first.ask(beat, 1)
        with waits_of(groups) as waits:
            await first.__aexit__(None, None, None)
            await asyncio.wait_for(waits.get(), patient(10))
            began, durable, durably = asyncio.Event(), asyncio.Event(), groups.consumer_heartbeat

            async def late(group_id: str, request: object) -> object:
                answer = await durably(group_id, request)  # type: ignore[arg-type]
                began.set()
                await durable.wait()
                return answer

            monkeypatch.setattr(groups, "consumer_heartbeat", late)
            beat.member_epoch, beat.subscribed_topic_names = joined.member_epoch, None
            beat.topic_partitions, beat.rebalance_timeout_ms = None, -1
            second.send(frame(beat, 1))
            await asyncio.wait_for(began.wait(), patient(10))
            assert groups.connections.carries(("g", "member-1"))
            assert groups.connections.heartbeat_ms("g", 5000) == 5000  # no member is waited for
            durable.set()
            await second.frame()


def named_by(request: str, member: JoinGroupResponse) -> tuple[object, int]:
    """Return a request that names the member and its generation, and the version."""
    generation, member_id = member.generation_id, member.member_id
    if request == "commit":
        return OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=generation, member_id=member_id, topics=[]
        ), 8
    if request == "transaction":
        return TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=1,
            producer_epoch=0,
            generation_id=generation,
            member_id=member_id,
            topics=[],
        ), 3
    asked = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=generation, topics=[])
    return OffsetFetchRequest(groups=[asked]), 9


@pytest.mark.parametrize("request_", ["commit", "transaction", "fetch"])
async def test_a_request_on_another_connection_keeps_its_member(cluster: LocalCluster, request_: str) -> None:
    """It comes before the next heartbeat, which may be due after the grace."""
    async with RawClient(cluster.bootstrap_servers) as client, RawClient(cluster.bootstrap_servers) as other:
        await client.find_coordinator("g")
        groups = groups_of(cluster)
        member = await join(client, "g")
        with waits_of(groups) as waits:
            await client.__aexit__(None, None, None)
            await asyncio.wait_for(waits.get(), patient(10))
            assert groups.connections.heartbeat_ms("g", 5000) == 1000  # it is waited for
            await other.ask(*named_by(request_, member))
            assert groups.connections.heartbeat_ms("g", 5000) == 5000
            assert groups.connections.carries(("g", member.member_id))


async def test_a_member_that_joins_again_is_not_fenced_before_its_session_ends(cluster: LocalCluster) -> None:
    """Java's consumer sends no heartbeats while it joins, and rejoins only when its program polls, which may be after minutes."""
    async with RawClient(cluster.bootstrap_servers) as client, RawClient(cluster.bootstrap_servers) as other:
        await client.find_coordinator("g")
        groups = groups_of(cluster)
        member = await join(client, "g")
        key = ("g", member.member_id)
        with waits_of(groups) as waits:
            other.send(frame(joining("g"), 2))  # a rebalance that the member's second JoinGroup ends
            await other.drained()
            await until(lambda: len(members_of(groups, "g")) == 2, pause_s=0)
            again = joining("g")
            again.member_id = member.member_id
            await client.ask(again, 2)
            assert groups.connections.carries(key)
            await client.__aexit__(None, None, None)
            await until(lambda: not groups.connections.carries(key), pause_s=0)
            assert waits.empty()
            assert member.member_id in members_of(groups, "g")


async def test_members_of_a_shard_that_is_unloaded_are_forgotten(cluster: LocalCluster) -> None:
    """Another broker coordinates them then: a connection that is closed here says nothing of them."""
    async with RawClient(cluster.bootstrap_servers) as client:
        await client.find_coordinator("g")
        groups = groups_of(cluster)
        with waits_of(groups) as waits:
            member = await join(client, "g")
            assert groups.connections.carries(("g", member.member_id))
            image = groups.runtime._image()
            assert image is not None
            (placed,) = image.partitions
            moved = replace(placed, leader=placed.leader + 1, leader_epoch=placed.leader_epoch + 1)
            groups._replicas.find(image.name, 0).registered(moved, 0)
            groups.runtime._image = lambda: replace(image, partitions=(moved,))
            groups.runtime.follow()
            assert groups.runtime.shards() == {}
            assert not groups.connections.carries(("g", member.member_id))
            await client.__aexit__(None, None, None)
            assert waits.empty()
