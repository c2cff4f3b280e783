"""What the tests of groups beside Apache Kafka ask: one function a scenario, each in groups of its own names.

Here: the scenarios.
Not here: how answers are compared (`groups_probe`, `test_groups_beside_kafka`).
"""

import asyncio
from collections.abc import Awaitable, Callable

from tests.integration.broker.groups_probe import BOTH, RANGE, Run
from tests.integration.broker.offsets_scenarios import forget_offsets, offsets_by_topic_id, simple_offsets
from tests.integration.broker.transactional_offsets_scenarios import SCENARIOS as TRANSACTIONAL

from busway_protocol.messages.groups_classic import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
)

Scenario = Callable[[Run], Awaitable[None]]
SETTINGS = {"group.min.session.timeout.ms": "1000", "group.max.session.timeout.ms": "60000", "group.max.size": "3"}
"""What both brokers run with, so that time-outs come soon and groups fill up."""


async def ids_and_bounds(run: Run) -> None:
    """What a join is refused for before any group is looked at."""
    peer = await run.peer("a", "")
    await peer.join("no group id")
    await peer.heartbeat("no group id")
    await peer.sync(label="no group id")
    await peer.leave("no group id")
    await peer.commit("no group id")
    await run.ask("describe the group without a name", DescribeGroupsRequest(groups=[""]))
    peer = await run.peer("b", "bounds")
    for timeout in (-1, 0, 999, 60_001):
        peer.session_timeout_ms = timeout
        await peer.join(f"session of {timeout} ms")
    await peer.describe("nothing came of it")


async def unknown_group(run: Run) -> None:
    """Requests of members of a group that does not exist."""
    peer = await run.peer("a", "nowhere")
    peer.member_id, peer.generation = "nobody", 3
    await peer.join()
    for version in (2, 4):
        await peer.heartbeat(f"heartbeat v{version}", version)
    await peer.sync()
    for version in (1, 2, 5):
        await peer.leave(f"leave v{version}", version)
    for version in (6, 8, 9):
        await peer.commit(f"commit v{version}", version)
    for version in (5, 6):
        await run.ask(f"describe v{version}", DescribeGroupsRequest(groups=["nowhere"]), at_most=version)
    await run.ask("delete", DeleteGroupsRequest(groups_names=["nowhere"]))


async def the_round_trip_for_an_id(run: Run) -> None:
    """MEMBER_ID_REQUIRED since version 4, and what the id is good for before the second join (KIP-394)."""
    peer = await run.peer("a", "roundtrip")
    await peer.join("asks for an id")
    await run.until("roundtrip", "Empty")
    await peer.describe("with an id handed out")
    await peer.heartbeat("with the id alone")
    await peer.commit("with the id alone")
    await peer.leave("with the id alone")
    await peer.leave("again")
    await peer.join("with the id it gave back")
    peer.member_id = ""
    await peer.enter()
    await peer.describe("joined")
    for version in range(4):
        old = await run.peer(f"v{version}", f"roundtrip-{version}")
        await old.join(f"join v{version}", version)


async def strangers(run: Run) -> None:
    """Requests under an id that is none, in a group that has a member."""
    first = await run.peer("a", "strangers")
    await first.enter()
    await first.sync([(first.member_id, b"x")])
    stranger = await run.peer("b", "strangers")
    stranger.member_id, stranger.generation = "nobody", first.generation
    await stranger.join()
    await stranger.heartbeat()
    await stranger.sync()
    await stranger.commit()
    await stranger.leave()
    stranger.instance_id = "seat"
    await stranger.join("with an instance id")
    await stranger.heartbeat("with an instance id")
    await stranger.commit("with an instance id")
    await stranger.leave("with an instance id")
    stranger.member_id = ""
    await stranger.leave("by an instance id that is none")
    nobody = await run.peer("c", "strangers")
    await nobody.commit("as nobody")
    nobody.generation = first.generation
    await nobody.commit("as nobody of this generation")
    await nobody.leave("as nobody")
    first.generation += 5
    await first.heartbeat("wrong generation")
    await first.sync(label="wrong generation")
    await first.commit("wrong generation")
    first.generation = -1
    await first.commit("no generation")
    await first.heartbeat("no generation")


async def protocols(run: Run) -> None:
    """What a member has to have in common with the group."""
    none = await run.peer("n", "protocols")
    none.protocols = ()
    await none.join("no protocols")
    none.protocols, none.protocol_type = RANGE, ""
    await none.join("no type")
    first = await run.peer("a", "protocols")
    await first.enter(protocols=BOTH)
    await first.sync([(first.member_id, b"x")], protocol_name="sticky", label="wrong name")
    await first.sync([(first.member_id, b"x")], protocol_type="connect", label="wrong type")
    await first.sync([(first.member_id, b"x")], protocol_name=None, label="no name")
    await first.sync([(first.member_id, b"x")], protocol_type=None, label="no type")
    await first.sync([(first.member_id, b"x")], protocol_type=None, protocol_name=None, at_most=4, label="v4")
    await first.sync(protocol_name="sticky", label="wrong name, stable")
    other = await run.peer("b", "protocols")
    other.protocols = (("sticky", b""),)
    await other.join("another protocol")
    other.protocols, other.protocol_type = RANGE, "connect"
    await other.join("another type")
    first.protocols = (("sticky", b""),)
    await first.join("a member with a protocol that it did not have")
    first.protocols = (BOTH[1],)
    await first.join("a member with one of its protocols")


async def a_life(run: Run) -> None:
    """Two members through every state, with everything that may be asked in each."""
    first, second = await run.peer("a", "life"), await run.peer("b", "life")
    await first.enter()
    await first.describe("the first has joined")
    await first.heartbeat("in CompletingRebalance")
    await first.commit("in CompletingRebalance")
    await first.join("again, unchanged, in CompletingRebalance")
    await first.sync([(first.member_id, b"all")])
    await first.sync(label="sync again")
    await first.describe("stable")
    await first.commit("in Stable")
    await run.ask("delete", DeleteGroupsRequest(groups_names=["life"]))
    joining = asyncio.create_task(second.enter())
    await run.until("life", "PreparingRebalance", 2)
    await first.describe("the second joins")
    await first.heartbeat("in PreparingRebalance")
    await first.commit("in PreparingRebalance")
    await first.sync(label="in PreparingRebalance")
    await run.ask("delete", DeleteGroupsRequest(groups_names=["life"]))
    old = first.generation
    await first.join("again")
    await joining
    first.generation, now = old, first.generation
    await first.heartbeat("in the old generation")
    await first.commit("in the old generation")
    first.generation = now
    await second.join("again, unchanged, in CompletingRebalance")
    waiting = asyncio.create_task(second.sync())
    await first.sync([(first.member_id, b"1"), (second.member_id, b"2")])
    await waiting
    await second.join("again, unchanged, in Stable")
    await second.sync()
    rejoin = first.later("the leader again, in Stable")
    await run.until("life", "PreparingRebalance", 2)
    await second.heartbeat()
    await second.leave()
    await rejoin
    await second.leave("twice")
    await second.heartbeat("after it left")
    await first.sync([])
    await first.leave()
    await first.describe("empty")
    await first.heartbeat("of an empty group")
    await first.commit("of an empty group")
    await first.join("of an empty group")
    first.member_id, first.generation = "", -1
    await first.commit("as nobody, when it is empty")
    await first.enter()


async def withdrawn_assignments(run: Run) -> None:
    """Who waits for an assignment when a member leaves has to join again."""
    first, second = await run.peer("a", "withdrawn"), await run.peer("b", "withdrawn")
    await first.enter()
    joining = asyncio.create_task(second.enter())
    await run.until("withdrawn", "PreparingRebalance", 2)
    await first.join("again")
    await joining
    waiting = asyncio.create_task(second.sync(label="waits"))
    await second.run.until("withdrawn", "CompletingRebalance", 2)
    await first.leave("the leader leaves")
    await waiting
    await second.describe("the follower is left")
    await second.join("again")


async def static_members(run: Run) -> None:
    """An instance that comes back takes its old seat; the id it had is fenced (KIP-345, KIP-814)."""
    first = await run.peer("a", "static")
    await first.enter(instance_id="seat")
    await first.sync([(first.member_id, b"mine")])
    await first.describe("stable")
    again = await run.peer("b", "static")
    await again.enter(instance_id="seat")
    await first.heartbeat("fenced")
    await first.sync(label="fenced")
    await first.commit("fenced")
    await first.join("fenced")
    await first.leave("fenced")
    await again.heartbeat()
    await again.sync()
    await again.describe("the other has the seat")
    older = await run.peer("c", "static")
    older.instance_id = "seat"
    await older.join("join v8", 8)
    await older.sync([])
    leaving = MemberIdentity(member_id="", group_instance_id="seat")
    await run.ask("an administrator", LeaveGroupRequest(group_id="static", members=[leaving, leaving]))
    await older.heartbeat("after that")
    await older.describe("after that")


async def static_follower(run: Run) -> None:
    """A static follower that comes back does not disturb; with other protocols it does."""
    lead, follower = await run.peer("a", "seats"), await run.peer("b", "seats")
    await lead.enter(instance_id="one", protocols=BOTH)
    follower.instance_id, follower.protocols = "two", BOTH
    joining = follower.later()
    await run.until("seats", "PreparingRebalance", 2)
    await lead.join("again")
    await joining
    await lead.sync([(lead.member_id, b"1"), (follower.member_id, b"2")])
    await follower.sync()
    back = await run.peer("c", "seats")
    await back.enter(instance_id="two", protocols=BOTH)
    await back.sync()
    await lead.heartbeat("nothing has happened")
    changed = await run.peer("d", "seats")
    changed.instance_id, changed.protocols = "two", (BOTH[1],)
    joining = changed.later("with one protocol only")
    await run.until("seats", "PreparingRebalance", 2)
    await lead.heartbeat("asked to join again")
    await lead.join("again")
    await joining


async def too_many(run: Run) -> None:
    """A fourth member of a group of three at most."""
    peers = [await run.peer(name, "many") for name in "abcd"]
    for count, peer in enumerate(peers[:3], 1):
        joining = asyncio.create_task(peer.enter())
        if count > 1:
            await run.until("many", "PreparingRebalance", count)
            others = [asyncio.create_task(other.join("again")) for other in peers[: count - 1]]
            await asyncio.gather(*others)
        await joining
        run.log = []  # who leads and in which order answers come is not the point here
    await peers[3].join("the fourth")


async def listing(run: Run) -> None:
    """ListGroups with its filters; only the groups made here."""
    peer, simple = await run.peer("a", "list-full"), await run.peer("b", "list-simple")
    await peer.enter()
    await simple.commit()
    for version in (0, 3, 4, 5):
        for states in ([], ["Empty"], ["completingrebalance", "EMPTY"], ["Stable"], ["nonsense"]):
            for types in ([], ["classic"], ["CLASSIC", "consumer"], ["consumer"]):
                if (states and version < 4) or (types and version < 5):
                    continue
                answer = await run.admin.request(
                    ListGroupsRequest(states_filter=states, types_filter=types), at_most=version
                )
                answer.groups = [group for group in answer.groups if group.group_id.startswith("list-")]
                run.note(f"list v{version} {states} {types}", answer)


async def silent_follower(run: Run) -> None:
    """A member that beats but does not sync is out after the rebalance timeout (KAFKA-13418)."""
    lead, follower = await run.peer("a", "silent"), await run.peer("b", "silent")
    await lead.enter(rebalance_timeout_ms=1_500)
    follower.rebalance_timeout_ms = 1_500
    joining = asyncio.create_task(follower.enter())
    await run.until("silent", "PreparingRebalance", 2)
    await lead.join("again")
    await joining
    await lead.sync([(lead.member_id, b"1"), (follower.member_id, b"2")])
    await lead.describe("stable without the follower's sync")
    await run.until("silent", "PreparingRebalance", 1)
    await lead.heartbeat("asked to join again")
    await follower.heartbeat("removed")
    await follower.sync(label="too late")
    await lead.join("again")


async def dead_member(run: Run) -> None:
    """A member that says nothing is out after its session; a static one too."""
    for instance in (None, "seat"):
        group_id = f"dead-{instance}"
        peer = await run.peer("a", group_id)
        await peer.enter(session_timeout_ms=1_000, instance_id=instance)
        await peer.sync([(peer.member_id, b"x")])
        await run.until(group_id, "Empty", 0)
        await peer.heartbeat("after its session")
        await peer.join("after its session")
        await peer.describe("after its session")


async def leaving_together(run: Run) -> None:
    """One request for several members: each has its own answer."""
    lead, other = await run.peer("a", "together"), await run.peer("b", "together")
    await lead.enter(instance_id="one")
    joining = asyncio.create_task(other.enter())
    await run.until("together", "PreparingRebalance", 2)
    await lead.join("again")
    await joining
    await lead.sync([(lead.member_id, b"1"), (other.member_id, b"2")])
    await other.sync()
    leaving = [
        MemberIdentity(member_id="nobody"),
        MemberIdentity(member_id=other.member_id, group_instance_id="none such"),
        MemberIdentity(member_id=other.member_id, group_instance_id="one"),
        MemberIdentity(member_id="", group_instance_id="one"),
        MemberIdentity(member_id=other.member_id),
    ]
    for version in (3, 5):
        await run.ask(f"leave v{version}", LeaveGroupRequest(group_id="together", members=leaving), at_most=version)
    await run.ask("nobody leaves", LeaveGroupRequest(group_id="together", members=[]))
    await lead.describe("empty")


async def coordinators(run: Run) -> None:
    """FindCoordinator in all versions."""
    for version in range(7):
        for key_type in (0, 5):
            if version == 0 and key_type:
                continue
            request = FindCoordinatorRequest(key_type=key_type)
            if version >= 4:
                request.coordinator_keys = ["g", "another", ""]
            else:
                request.key = "g"
            await run.ask(f"find v{version} type {key_type}", request, at_most=version)


SCENARIOS: list[Scenario] = [
    ids_and_bounds,
    unknown_group,
    the_round_trip_for_an_id,
    strangers,
    protocols,
    a_life,
    withdrawn_assignments,
    static_members,
    static_follower,
    too_many,
    simple_offsets,
    offsets_by_topic_id,
    forget_offsets,
    listing,
    silent_follower,
    dead_member,
    leaving_together,
    coordinators,
    *TRANSACTIONAL,
]
