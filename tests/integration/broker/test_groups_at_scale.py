"""What a group costs does not grow with its size, and what is stored of many groups does not keep the node from serving."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from tests.integration.broker.groups_probe import run_against
from tests.integration.broker.test_groups import offset
from tests.support.patience import patient

from busway_bus.coordinator.group_coordinator import LOAD_GRACE_S
from busway_bus.groups.classic.group import ClassicGroup
from busway_bus.groups.classic.member import Member
from busway_bus.groups.classic.members import Roster
from busway_bus.groups.group import Committer
from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.groups.modern.consumer_group import ConsumerGroup
from busway_bus.groups.modern.requests import ConsumerHeartbeat
from busway_bus.groups.offsets import NewOffset
from busway_bus.groups.shard import GroupShard
from busway_bus.handlers.common.context import Peer
from busway_bus.kernel.limits import MEMBERS_PER_TICK_MAX
from busway_bus.scheduling.time_slices import Slices
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import ListGroupsRequest
from busway_protocol.types import ZERO_UUID


async def test_a_heartbeat_looks_at_no_other_member(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of members each heartbeat would cost as many looks."""
    async with run_against(cluster.bootstrap_servers) as run:
        peer = await run.peer("a", "g")
        await peer.enter()
        await peer.sync([(peer.member_id, b"mine")])

        def refuse(*_: Any) -> Any:
            raise AssertionError("the group's members were gone through")

        monkeypatch.setattr(ClassicGroup, "next_deadline", refuse)
        monkeypatch.setattr(Roster, "__iter__", refuse)
        for _ in range(3):
            assert (await peer.heartbeat()).error_code == ErrorCode.NONE


async def test_a_session_that_heartbeats_put_off_ends_in_time(cluster: LocalCluster) -> None:
    """The timer of the old end looks for the new one: a member that falls silent later is out, and the group is empty."""
    assert cluster.node is not None
    groups = cluster.node.services.groups
    runtime = groups.runtime
    now = runtime.now()
    runtime.now = lambda: now  # type: ignore[method-assign]
    async with run_against(cluster.bootstrap_servers) as run:
        peer = await run.peer("a", "g")
        await peer.enter(session_timeout_ms=10_000)
        await peer.sync([(peer.member_id, b"mine")])
        group = groups.shard("g").groups["g"]
        now += 6_000
        assert (await peer.heartbeat()).error_code == ErrorCode.NONE
        now += 6_000  # the first end is over
        runtime.decide(0, lambda shard: shard.tick(now))
        assert set(group.members) == {peer.member_id}
        assert group.next_deadline() == now + 4_000
        now += 4_000
        runtime.decide(0, lambda shard: shard.tick(now))
        assert not group.members


async def test_a_large_commit_takes_turns_with_others(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of 10,000 partitions are one batch, and another group commits while it is built. If the group refuses it, none is stored."""
    assert cluster.node is not None
    groups = cluster.node.services.groups
    await groups.ensure()
    new = NewOffset(offset=1, leader_epoch=-1, metadata="", topic_id=ZERO_UUID, retention_ms=-1)
    offsets = {("t", partition): new for partition in range(10_000)}
    anyone = Committer(member_id="", instance_id=None, epoch=-1, version=8)
    checked: list[str] = []
    check = GroupShard.check_commit

    def noted(self: GroupShard, group_id: str, *rest: Any) -> None:
        checked.append(group_id)
        if group_id == "refused":
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        check(self, group_id, *rest)

    monkeypatch.setattr(GroupShard, "check_commit", noted)
    large = asyncio.ensure_future(groups.commit("large", anyone, offsets))
    await asyncio.sleep(0)  # its batch is begun
    await groups.commit("small", anyone, {("t", 0): new})
    assert set((await large).values()) == {ErrorCode.NONE}
    assert checked == ["small", "large"]
    assert (await groups.offsets("large"))[0].keys() == offsets.keys()
    with pytest.raises(KafkaError):
        await groups.commit("refused", anyone, offsets)
    assert (await groups.offsets("refused"))[0] == {}


async def test_very_many_that_leave_together_take_turns_with_others(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of a consumer group go a few at a time, each three records; all get true answers, also where the log refuses to go on."""
    assert cluster.node is not None
    groups = cluster.node.services.groups
    await groups.ensure()
    count = 2 * MEMBERS_PER_TICK_MAX + 5
    named: list[tuple[str, str | None]] = [(f"m{at}", None) for at in range(count)]

    async def enter(members: Iterable[str]) -> None:
        await asyncio.gather(*(groups.consumer_heartbeat("g", joining(member)) for member in members))

    written: list[tuple[str, int]] = []
    decide = GroupShard.leave

    def noted(self: GroupShard, group_id: str, identities: Any, *rest: Any) -> Any:
        written.append((group_id, len(identities)))
        if len(identities) == MEMBERS_PER_TICK_MAX and written.count(("g", MEMBERS_PER_TICK_MAX)) == 4:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return decide(self, group_id, identities, *rest)

    monkeypatch.setattr(GroupShard, "leave", noted)
    await enter(member for member, _ in named)
    leaving = asyncio.ensure_future(groups.leave("g", [*named, ("nobody", None), named[0]]))
    while not written:
        await asyncio.sleep(0)
    assert await groups.leave("other", [("nobody", None)]) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert await leaving == [ErrorCode.NONE] * count + [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert written.index(("other", 1)) < len(written) - 1
    assert [size for group, size in written if group == "g"] == [MEMBERS_PER_TICK_MAX, MEMBERS_PER_TICK_MAX, 7]
    group = groups.shard("g").groups["g"]
    assert group.empty
    await enter(member for member, _ in named)
    codes = await groups.leave("g", named)
    stays = {member for (member, _), code in zip(named, codes, strict=True) if code is not ErrorCode.NONE}
    assert len(stays) == MEMBERS_PER_TICK_MAX
    assert codes.count(ErrorCode.COORDINATOR_NOT_AVAILABLE) == MEMBERS_PER_TICK_MAX
    assert isinstance(group, ConsumerGroup)
    assert group.members.keys() == stays


def joining(member_id: str) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        member_id=member_id,
        epoch=0,
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="/",
        rebalance_timeout_ms=1_000,
        topics=frozenset("t"),
        regex=None,
        assignor=None,
        owned={},
    )


def test_what_all_members_speak_is_known_without_asking_them() -> None:
    """A join is judged by counts that follow every change of the members; an old protocol is forgotten."""
    roster = Roster(GroupMemory())

    def member(name: str, *protocols: str) -> Member:
        return Member(
            member_id=name,
            instance_id=None,
            client_id="c",
            client_host="h",
            session_timeout_ms=1,
            rebalance_timeout_ms=1,
            protocols=tuple((protocol, b"") for protocol in protocols),
            deadline_ms=0,
        )

    assert roster.speak([("any", b"")])
    roster.add(member("a", "range", "sticky", "sticky"))
    roster.add(member("b", "sticky"))
    assert roster.common_protocols() == {"sticky"}
    assert [roster.speak([(name, b"")]) for name in ("range", "sticky", "other")] == [False, True, False]
    roster.change_protocols(roster.members["b"], (("range", b""),))
    assert roster.common_protocols() == {"range"}
    roster.remove("b")
    assert roster.common_protocols() == {"range", "sticky"}
    roster.remove("a")
    assert roster.common_protocols() == set()
    assert not roster._by_protocol


@pytest.mark.slow
async def test_a_node_serves_while_it_reads_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of one partition is read in slices; its groups answer that clients have to wait, those of empty ones and all else are served."""
    gate = asyncio.Event()
    run_slices = Slices.run

    async def held(self: Slices, steps: Any) -> Any:
        await gate.wait()
        return await run_slices(self, steps)

    async with LocalCluster(properties={"offsets.topic.num.partitions": "50"}) as cluster:
        async with run_against(cluster.bootstrap_servers) as run:
            await (await run.peer("a", "g")).commit()
        await cluster.stop()
        monkeypatch.setattr(Slices, "run", held)
        monkeypatch.setattr("busway_bus.node.LOAD_GRACE_S", 0)
        await cluster.start()
        async with run_against(cluster.bootstrap_servers, "other") as run:
            assert await offset(run, "other") == -1
            waiting = await (await run.peer("a", "g")).commit()
            assert waiting.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            listed = await run.admin.request(ListGroupsRequest(states_filter=[], types_filter=[]))
            assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            gate.set()
            assert cluster.node is not None
            await cluster.node.services.groups.runtime.wait_loaded(within_s=patient(30))
            assert await offset(run, "g") == 7
    assert LOAD_GRACE_S > 0


async def test_many_members_are_fenced_a_few_at_a_time() -> None:
    """A host with all of them is gone, and their connections are closed in one moment; others are served in between."""
    count = 20 * MEMBERS_PER_TICK_MAX
    async with LocalCluster(properties={"group.disconnect.grace.ms": "1"}) as cluster:
        assert cluster.node is not None
        groups = cluster.node.services.groups
        await groups.ensure()
        await groups.runtime.wait_loaded(within_s=patient(LOAD_GRACE_S))
        peers = [Peer() for _ in range(count)]
        for number, peer in enumerate(peers):
            result = await groups.consumer_heartbeat("g", joining(f"m{number}"))
            groups.connections.request_received(peer, ("g", result.member_id), 1)
        for peer in peers:
            peer.closed(by_client=True)
            peer.left()
        there, at_once = count, 0
        async with asyncio.timeout(patient(30)):
            while there:
                await asyncio.sleep(0)
                group = groups.group("g")
                left = len(group.members) if isinstance(group, ConsumerGroup) else 0
                there, at_once = left, max(at_once, there - left)
        assert 0 < at_once <= 2 * MEMBERS_PER_TICK_MAX
