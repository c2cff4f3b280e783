"""What members of consumer groups and administrators ask of two brokers, whose answers have to be the same (KIP-848).

Here: a member that sends heartbeats, and the scenarios.
Not here: comparing (`answers`), the log of answers (`groups_probe`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.integration.broker.groups_probe import DEADLINE_S, Run

from busway.net.connection import Connection
from busway_protocol.messages.groups_classic import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from busway_protocol.messages.groups_modern import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from busway_protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.migration.policy": "disabled",
    "group.consumer.max.size": "3",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "8000",
    "group.initial.rebalance.delay.ms": "0",
}
Scenario = Callable[[Run], Awaitable[None]]


class Member:
    """One client of one group, that has what it was given, and gives up what it is asked for when `confirm` says so."""

    def __init__(self, run: Run, name: str, group_id: str, connection: Connection) -> None:
        self.run, self.name, self.group_id, self.connection = run, name, group_id, connection
        self.member_id = f"{group_id}-{name}"
        self.instance_id: str | None = None
        self.epoch = 0
        self.owned: list[TopicPartitions] = []
        self.assigned: list[TopicPartitions] | None = None
        self.rebalance_timeout_ms = 20_000

    async def join(self, label: str = "join", *, topics: list[str] | None = None, **fields: Any) -> Any:
        """The first heartbeat."""
        self.epoch, self.owned = 0, []
        wanted = ["read"] if topics is None and "subscribed_topic_regex" not in fields else topics
        return await self.beat(
            label,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            subscribed_topic_names=wanted,
            topic_partitions=[],
            **fields,
        )

    async def beat(self, label: str, at_most: int | None = None, **fields: Any) -> Any:
        """A heartbeat; takes over the epoch, and notes what it may read."""
        said = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
        }
        request = ConsumerGroupHeartbeatRequest(**{**said, **fields})
        answer = await self.connection.request(request, at_most=at_most)
        if not self.member_id and answer.member_id:
            self.member_id = answer.member_id
            self.run.name(answer.member_id, f"member {self.name}")
        self.run.note(f"{self.name}: {label}", answer)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = answer.assignment.topic_partitions
        return answer

    async def confirm(self, label: str) -> Any:
        """Take over the assignment, and report it."""
        if self.assigned is not None:
            self.owned = self.assigned
        return await self.beat(label, topic_partitions=self.owned)

    async def leave(self, label: str = "leave", *, epoch: int = -1) -> Any:
        """The last heartbeat."""
        return await self.beat(label, member_epoch=epoch)

    async def commit(self, label: str, *, epoch: int | None = None, at_most: int | None = 9, partition: int = 0) -> Any:
        """OffsetCommit of offset 7."""
        offset = OffsetCommitRequestPartition(partition_index=partition, committed_offset=7, committed_metadata="m")
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.epoch if epoch is None else epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequestTopic(name="read", partitions=[offset])],
        )
        return await self.run.ask(f"{self.name}: {label}", request, at_most=at_most, via=self.connection)

    async def fetch(self, label: str, *, member_id: str | None, epoch: int) -> Any:
        """OffsetFetch of one partition."""
        topics = [OffsetFetchRequestTopics(name="read", partition_indexes=[0])]
        group = OffsetFetchRequestGroup(group_id=self.group_id, member_id=member_id, member_epoch=epoch, topics=topics)
        return await self.run.ask(
            f"{self.name}: {label}", OffsetFetchRequest(groups=[group]), at_most=9, via=self.connection
        )


async def member(run: Run, name: str, group_id: str) -> Member:
    """A client that may become a member."""
    return Member(run, name, group_id, await run.connect(name))


async def describe(run: Run, group_id: str, label: str) -> None:
    """The group as ConsumerGroupDescribe and DescribeGroups tell it."""
    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    await run.ask(f"describe {label}", request)
    await run.ask(f"describe {label} as a classic one", DescribeGroupsRequest(groups=[group_id]))


async def until(run: Run, group_id: str, wanted: Callable[[Any], bool]) -> Any:
    """Ask until the described group is as wanted."""
    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    async with asyncio.timeout(DEADLINE_S):
        while True:
            answer = (await run.admin.request(request)).groups[0]
            if wanted(answer):
                return answer


async def bad_requests(run: Run) -> None:
    """What is refused before any group is looked at."""
    peer = await member(run, "a", "bad")
    full = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ["read"], "topic_partitions": []}
    await peer.beat("no group", **{**full, "group_id": ""})
    await peer.beat("no member id", **{**full, "member_id": ""})
    await peer.beat("no time-out", **{**full, "rebalance_timeout_ms": -1})
    await peer.beat(
        "has something",
        **{**full, "topic_partitions": [TopicPartitions(topic_id=run.topic_ids["read"], partitions=[0])]},
    )
    await peer.beat("does not say what it has", **{**full, "topic_partitions": None})
    await peer.beat("no subscription", **{**full, "subscribed_topic_names": None})
    await peer.beat("empty instance id", **full, instance_id="")
    await peer.beat("empty rack", **full, rack_id=" ")
    await peer.beat("unknown assignor", **full, server_assignor="sticky")
    await peer.beat("bad epoch", **{**full, "member_epoch": -3})
    await peer.beat("leaves for a while without an instance id", member_epoch=-2)
    await peer.beat("bad pattern", **{**full, "subscribed_topic_names": None}, subscribed_topic_regex="(")
    await peer.beat("unknown group", member_epoch=3)
    await peer.beat("leaves an unknown group", member_epoch=-1)
    await describe(run, "bad", "a group that is not there")
    await describe(run, "", "a group without a name")


async def a_life(run: Run) -> None:
    """Two members share a topic; a partition changes hands when its owner has given it up."""
    first, second = await member(run, "a", "life"), await member(run, "b", "life")
    await first.join(at_most=0)
    await describe(run, "life", "one member")
    await first.confirm("has it")
    await first.beat("nothing new")
    await first.join("joins again")
    await first.confirm("has it again")
    await second.join()
    await describe(run, "life", "while one has to give up")
    await first.beat("is told to give up")
    await describe(run, "life", "while one was told to give up")
    await second.beat("waits")
    await first.beat("has not given up", topic_partitions=first.owned)
    await first.confirm("has given up")
    await second.beat("gets it")
    await second.confirm("has it")
    await first.beat("nothing new, again")
    await describe(run, "life", "at rest")
    await run.ask("list consumer groups", ListGroupsRequest(states_filter=[], types_filter=["consumer"]))
    await run.ask("list classic groups", ListGroupsRequest(states_filter=[], types_filter=["Classic"]))
    await run.ask("list stable groups", ListGroupsRequest(states_filter=["Stable"], types_filter=["consumer"]))
    await run.ask("delete a full group", DeleteGroupsRequest(groups_names=["life"]))
    await second.leave()
    await describe(run, "life", "after one has left")
    await first.beat("gets all")
    await first.confirm("has all")
    await first.leave()
    await describe(run, "life", "empty")
    await first.beat("is gone", member_epoch=4)
    await run.ask("list empty groups", ListGroupsRequest(states_filter=["empty"], types_filter=["consumer"]))
    await run.ask("delete the empty group", DeleteGroupsRequest(groups_names=["life"]))
    await describe(run, "life", "deleted")


async def epochs(run: Run) -> None:
    """Members in the wrong epoch are fenced, but for one whose answer was lost."""
    first, second = await member(run, "a", "epochs"), await member(run, "b", "epochs")
    await first.join()
    await first.confirm("has it")
    await first.beat("too new", member_epoch=first.epoch + 1)
    await first.beat("too old", member_epoch=first.epoch - 1)
    await second.beat("no member", member_epoch=2)
    await second.leave("leaves as no member")
    await second.join()
    before = first.epoch
    await first.beat("is told to give up")
    await first.confirm("gives up")
    await first.beat("repeats the last epoch", member_epoch=before, topic_partitions=first.owned)
    await first.beat("repeats the last epoch without saying what it has", member_epoch=before)
    for name in "cd":
        await (await member(run, name, "epochs")).join()


async def static_members(run: Run) -> None:
    """A static member goes for a while, and comes back under another id to what it had."""
    first, second, third = [await member(run, name, "static") for name in "abc"]
    first.instance_id = second.instance_id = third.instance_id = "seat"
    await first.join()
    await first.confirm("has it")
    await second.join("while the seat is taken")
    await second.beat("no owner", member_epoch=2)
    await first.leave("goes for a while", epoch=-2)
    await describe(run, "static", "while the seat is free")
    await second.join("takes the seat")
    await second.confirm("has it")
    await describe(run, "static", "with the seat taken")
    await first.beat("fenced", member_epoch=2)
    await first.leave("leaves fenced")
    third.instance_id = "nobody"
    await third.beat("unknown instance", member_epoch=2)
    identity = MemberIdentity(member_id="", group_instance_id="seat")
    unknown = MemberIdentity(member_id="", group_instance_id="nobody")
    await run.ask("removed", LeaveGroupRequest(group_id="static", members=[identity, unknown]))
    await describe(run, "static", "empty")
    await third.join("comes")
    await third.leave("leaves for good")


async def offsets(run: Run) -> None:
    """Who may commit and ask for offsets, in which epoch."""
    first, second = await member(run, "a", "offsets"), await member(run, "b", "offsets")
    await first.join()
    await first.confirm("has it")
    await first.commit("in its epoch")
    await first.commit("in an old version", at_most=8)
    await first.commit("in a newer epoch", epoch=first.epoch + 1)
    await first.commit("in an older epoch", epoch=first.epoch - 1)
    await first.commit("without an epoch", epoch=-1)
    await second.commit("as a stranger", epoch=first.epoch)
    await second.join()
    await first.beat("is told to give up")
    await first.confirm("gives up")
    await first.commit("what it has kept, in the epoch before", epoch=first.epoch - 1)
    await first.commit("what it has given up, in the epoch before", epoch=first.epoch - 1, partition=1)
    await first.fetch("asks as itself", member_id=first.member_id, epoch=first.epoch)
    await first.fetch("asks in an older epoch", member_id=first.member_id, epoch=first.epoch - 1)
    await first.fetch("asks as a stranger", member_id="stranger", epoch=1)
    await first.fetch("asks as nobody", member_id=None, epoch=-1)
    read = OffsetDeleteRequestTopic(name="read", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    left = OffsetDeleteRequestTopic(name="left", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    await run.ask("forget offsets", OffsetDeleteRequest(group_id="offsets", topics=[read, left]))
    await first.leave()
    await second.leave()
    await first.commit("to an empty group as nobody", epoch=-1)
    await run.ask("forget offsets of an empty group", OffsetDeleteRequest(group_id="offsets", topics=[read, left]))


async def other_kinds(run: Run) -> None:
    """A group is of one kind while it has members; an empty one becomes what its first member wants."""
    modern = await member(run, "a", "kinds")
    classic = await run.peer("b", "kinds")
    await modern.join()
    await classic.join("into a consumer group", at_most=3)
    await modern.leave()
    await classic.enter()
    await classic.sync([(classic.member_id, b"")])
    await run.ask("describe the classic group", DescribeGroupsRequest(groups=["kinds"]))
    await modern.join("into a classic group")
    await modern.beat("to a classic group", member_epoch=1)
    await modern.leave("from a classic group")
    await classic.leave()
    await modern.join("into an empty classic group")
    await describe(run, "kinds", "once more of the new kind")
    await modern.leave("for good")


async def patterns(run: Run) -> None:
    """Topics by a regular expression, resolved after the answer."""
    peer = await member(run, "a", "patterns")
    await peer.join(subscribed_topic_regex="rea.*")
    await until(run, "patterns", lambda group: group.group_epoch > group.assignment_epoch)
    await peer.beat("is given what matches")
    await peer.confirm("has it")
    await describe(run, "patterns", "with a pattern")
    await peer.beat("by names again", subscribed_topic_regex="", subscribed_topic_names=["left"])
    await peer.confirm("has given up")
    await peer.confirm("has the other")
    await describe(run, "patterns", "by names")
    await peer.leave()


async def more_partitions(run: Run) -> None:
    """A topic that grows, and one that comes, are seen with the next heartbeats."""
    peer = await member(run, "a", "grows")
    await peer.join(topics=["left", "later"])
    await peer.confirm("has it")
    grown = CreatePartitionsTopic(name="left", count=3, assignments=None)
    await run.admin.request(CreatePartitionsRequest(topics=[grown], timeout_ms=10_000, validate_only=False))
    async with asyncio.timeout(DEADLINE_S):
        assignment = peer.assigned
        while peer.assigned == assignment:
            request = ConsumerGroupHeartbeatRequest(
                group_id=peer.group_id, member_id=peer.member_id, member_epoch=peer.epoch
            )
            answer = await peer.connection.request(request)
            assert not answer.error_code
            peer.epoch = answer.member_epoch
            peer.assigned = assignment if answer.assignment is None else answer.assignment.topic_partitions
    await peer.confirm("has all")
    await describe(run, "grows", "with one more partition")
    await peer.leave()


async def silence(run: Run) -> None:
    """Who sends no heartbeats, or does not give up in time, is out."""
    first, second = await member(run, "a", "silence"), await member(run, "b", "silence")
    first.rebalance_timeout_ms = 1_000
    await first.join()
    await first.confirm("has it")
    await second.join()
    await first.beat("is told to give up")
    await until(run, "silence", lambda group: len(group.members) == 1)
    await first.beat("was too late")
    await second.beat("gets all")
    await second.confirm("has all")
    await describe(run, "silence", "after one was too late")
    await until(run, "silence", lambda group: not group.members)
    await second.beat("was silent")
    await describe(run, "silence", "after one was silent")


SCENARIOS: list[Scenario] = [
    bad_requests,
    a_life,
    epochs,
    static_members,
    offsets,
    other_kinds,
    patterns,
    more_partitions,
    silence,
]
