"""What members of both protocols in one group ask of two brokers, whose answers have to be the same (KIP-848's live migration).

Here: the scenarios.
Not here: comparing (`answers`), the members (`groups_probe`, `consumer_groups_scenarios`).
"""

import asyncio
from collections.abc import Sequence

from tests.integration.broker.consumer_groups_scenarios import SETTINGS as OF_CONSUMER_GROUPS
from tests.integration.broker.consumer_groups_scenarios import Member, Scenario, describe, member, until
from tests.integration.broker.groups_probe import DEADLINE_S, RANGE, Peer, Run

from busway_protocol.assignors.consumer_protocol import encode_assignment, encode_subscription
from busway_protocol.assignors.subscription import Subscription
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import HeartbeatRequest

SETTINGS = {
    **OF_CONSUMER_GROUPS,
    "group.consumer.migration.policy": "bidirectional",
    "group.min.session.timeout.ms": "1000",
}


def owning(*numbers: int, name: str = "range", topics: Sequence[str] = ("read",)) -> tuple[tuple[str, bytes], ...]:
    """What a member says that has these partitions."""
    owned = tuple(("read", number) for number in numbers)
    return ((name, encode_subscription(Subscription(topics=tuple(topics), owned_partitions=owned))),)


def given(*numbers: int) -> bytes:
    """What a leader gives to a member."""
    return encode_assignment([("read", number) for number in numbers])


async def alone(run: Run, name: str, group_id: str, **fields: object) -> Peer:
    """A classic member that has both partitions of a group of its own."""
    peer = await run.peer(name, group_id)
    await peer.enter(**fields)
    await peer.sync([(peer.member_id, given(0, 1))])
    await peer.heartbeat("has all")
    return peer


async def mixed(run: Run, group_id: str, **fields: object) -> tuple[Peer, Member]:
    """One member of each protocol, with one partition each."""
    first, other = await alone(run, "a", group_id, **fields), await member(run, "b", group_id)
    await other.join()
    first.protocols = owning(0, 1)
    await first.join("is to give up")
    await first.sync(label="what is left")
    first.protocols = owning(0)  # the first one stays
    await first.join("has given up")
    await first.sync(label="has one")
    await first.heartbeat("has one")
    await other.beat("gets one")
    await other.confirm("has one")
    return first, other


async def both_ways(run: Run) -> None:
    """A classic group becomes a consumer group with the first member that is for one, and classic again when that has left."""
    first, other = await alone(run, "a", "both"), await member(run, "b", "both")
    await first.commit("before")
    await other.join()
    await describe(run, "both", "upgraded")
    await first.heartbeat("has to join")
    await first.sync(label="has to join first")
    await first.commit("within")
    await other.beat("waits")
    first.protocols = owning(0, 1)
    await first.join("is to give up")
    await first.sync(label="what is left")
    await first.heartbeat("has not given up")
    await describe(run, "both", "giving up")
    first.protocols = owning(0)
    await first.join("has given up")
    await first.sync(label="has one")
    await first.heartbeat("has one")
    await other.beat("gets one")
    await other.confirm("has one")
    await describe(run, "both", "shared")
    await first.commit("in its generation")
    first.generation += 5
    await first.heartbeat("in no generation")
    await first.sync(label="in no generation")
    await first.commit("in no generation")
    first.generation -= 5
    await first.sync(label="of another type", protocol_type="connect")
    await first.sync(label="of another protocol", protocol_name="roundrobin")
    await first.sync(label="of none", protocol_type=None, protocol_name=None, at_most=4)
    await other.fetch("all", member_id=None, epoch=-1)
    await other.leave()
    await describe(run, "both", "downgraded")
    await first.heartbeat("classic again")
    await first.commit("classic again")
    await first.join("classic again")
    await first.sync([(first.member_id, given(0, 1))], label="classic again")
    await first.heartbeat("at rest")
    await describe(run, "both", "at rest")
    await other.fetch("all at the end", member_id=None, epoch=-1)
    await first.leave()
    await describe(run, "both", "empty")


async def while_it_rebalances(run: Run) -> None:
    """Those that wait have to join again."""
    first, second = await alone(run, "a", "busy"), await run.peer("b", "busy")
    await second.join("asks for an id")
    waits = second.later("waits")
    await run.until("busy", "PreparingRebalance", 2)
    other = await member(run, "c", "busy")
    await other.join()
    await waits
    for peer in (first, second):
        peer.protocols = owning(0, 1) if peer is first else RANGE
        await peer.join("again")
        await peer.sync(label="again")


async def while_it_completes(run: Run) -> None:
    """Who waits for the leader's assignment has to join again."""
    first, second = await alone(run, "a", "late"), await run.peer("b", "late")
    await second.join("asks for an id")
    waits = second.later("second")
    await run.until("late", "PreparingRebalance", 2)
    await first.join("again")
    await waits
    follower = asyncio.create_task(second.sync(label="waits"))
    await second.heartbeat("while it waits")
    other = await member(run, "c", "late")
    await other.join()
    await follower
    await first.heartbeat("has to join")
    await second.heartbeat("has to join")


async def no_upgrade(run: Run) -> None:
    """Groups that must stay classic."""
    peer = await run.peer("a", "workers")
    await peer.enter(protocol_type="connect")
    await peer.sync([(peer.member_id, b"x")], protocol_type="connect")
    await (await member(run, "b", "workers")).join("other type")
    two = await run.peer("c", "custom")
    await two.enter()
    await two.sync([(two.member_id, encode_assignment([("read", 0)], b"mine"))])
    await (await member(run, "d", "custom")).join("with user data")
    three = await run.peer("e", "odd")
    await three.enter()
    await three.sync([(three.member_id, b"\0")])
    await (await member(run, "f", "odd")).join("odd bytes")
    await (await member(run, "f", "odd")).beat("goes on", member_epoch=3)
    await three.heartbeat("goes on")
    for group_id in ("workers", "custom", "odd"):
        await describe(run, group_id, group_id)


async def joins(run: Run) -> None:
    """Classic members that come to a consumer group, and those that may not."""
    other = await member(run, "b", "joins")
    await other.join()
    await other.confirm("has all")
    peer = await run.peer("a", "joins")
    await peer.join("of an old version", at_most=3)
    await peer.sync(label="gets nothing yet")
    await describe(run, "joins", "with both")
    bad = await run.peer("c", "joins")
    bad.protocol_type = "connect"
    await bad.join("other type")
    bad.protocol_type, bad.protocols = "consumer", owning(name="roundrobin")
    await bad.join("other protocol")
    bad.protocols, bad.session_timeout_ms = RANGE, 1
    await bad.join("short session")
    bad.member_id = "nobody"
    await bad.join("short session, with an id")
    bad.session_timeout_ms, bad.instance_id = 20_000, "seat"
    await bad.join("unknown instance")
    bad.instance_id, bad.member_id = None, other.member_id
    await bad.heartbeat("as another")
    await bad.sync(label="as another")
    bad.member_id = "nobody"
    await bad.heartbeat("as nobody")
    await bad.sync(label="as nobody")
    await bad.leave("as nobody")
    bad.member_id, bad.instance_id = "", None
    await bad.enter()
    full = await run.peer("d", "joins")
    await full.join("one too many")
    await describe(run, "joins", "full")


async def static_members(run: Run) -> None:
    """A static member changes its protocol under a new id, in both directions."""
    peer = await alone(run, "a", "static", instance_id="seat")
    other = await member(run, "b", "static")
    other.instance_id = "seat"
    await other.join()
    await describe(run, "static", "with the consumer protocol")
    await peer.heartbeat("is fenced")
    await peer.sync(label="is fenced")
    await peer.commit("is fenced")
    await peer.join("is fenced")
    await peer.leave("is fenced")
    again = await run.peer("c", "static")
    again.instance_id = "seat"
    await again.join()
    await describe(run, "static", "classic again")
    await other.beat("is fenced now")
    await again.sync()
    await again.heartbeat()
    await describe(run, "static", "at rest")


async def leaving(run: Run) -> None:
    """Members of both protocols go."""
    first, other = await mixed(run, "leaving")
    two = await run.peer("c", "leaving")
    await two.enter()
    await first.leave()
    await describe(run, "leaving", "without one")
    await two.heartbeat("has to join")
    await two.leave()
    await other.beat("has all again")
    await describe(run, "leaving", "without classic ones")
    await other.leave()
    await describe(run, "leaving", "without any")
    late = await run.peer("d", "leaving")
    await late.enter()
    await late.sync([(late.member_id, given(0, 1))])
    await describe(run, "leaving", "classic after that")


async def silence(run: Run) -> None:
    """Who is silent, or does not join or sync in time, is out."""
    first, other = await mixed(run, "hush", rebalance_timeout_ms=1_500)
    two = await run.peer("c", "hush")
    await two.enter(rebalance_timeout_ms=1_000)
    async with asyncio.timeout(DEADLINE_S):
        while (await first.connection.request(_heartbeat(first))).error_code != ErrorCode.UNKNOWN_MEMBER_ID:
            await asyncio.sleep(0.1)
    await until(run, "hush", lambda group: len(group.members) == 1)
    await two.sync(label="was too late")
    await first.join("comes again")
    await other.beat("goes on")
    await describe(run, "hush", "after two were too late")


def _heartbeat(peer: Peer) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=peer.group_id,
        generation_id=peer.generation,
        member_id=peer.member_id,
        group_instance_id=peer.instance_id,
    )


async def consumer_is_silent(run: Run) -> None:
    """The last member of the consumer protocol does not come back: the group is classic again."""
    first, _ = await mixed(run, "gone", session_timeout_ms=30_000)
    async with asyncio.timeout(DEADLINE_S):
        while (await first.connection.request(_heartbeat(first))).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            await asyncio.sleep(0.1)
    await describe(run, "gone", "after one was silent")
    await first.join("classic again")
    await first.sync([(first.member_id, given(0, 1))])
    await describe(run, "gone", "at rest")


async def without_consumer_groups(run: Run) -> None:
    """What is answered while group.version is 0."""
    other = await member(run, "b", "old")
    await other.join()
    await other.beat("a later one", member_epoch=3)
    await other.leave()
    await describe(run, "old", "no group")
    peer = await alone(run, "a", "old")
    await other.join("where a classic group is")
    await peer.heartbeat("is not moved")
    await describe(run, "old", "a classic group")


SCENARIOS: list[Scenario] = [
    both_ways,
    while_it_rebalances,
    while_it_completes,
    no_upgrade,
    joins,
    static_members,
    leaving,
    silence,
    consumer_is_silent,
]
