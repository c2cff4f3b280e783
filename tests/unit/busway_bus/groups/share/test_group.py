"""Share groups in a shard: whatever members, topics and the share coordinator do, the log says what is in force."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.groups.modern.topics import Topics
from busway_bus.groups.shard import GroupShard
from busway_bus.groups.share import partitions
from busway_bus.groups.share.group import NamedPartitions, ShareGroup
from busway_bus.groups.share.heartbeat import (
    ShareGroupLimits,
    ShareHeartbeat,
    ShareHeartbeatReply,
    leave,
    share_group_heartbeat,
)
from busway_bus.kernel.decision import Decision
from busway_bus.metadata.image import ClusterImage, PartitionImage, TopicImage
from busway_protocol.errors import ErrorCode, KafkaError

SESSION_MS = 45_000
LIMITS = ShareGroupLimits(
    max_size=3, session_timeout_ms=SESSION_MS, heartbeat_interval_ms=5_000, assignment_interval_ms=0
)
ONE = PartitionImage(leader=1, leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,))


class Bench:
    """A shard, the cluster's topics and a clock; records go through bytes into a log."""

    def __init__(self, memory: GroupMemory | None = None) -> None:
        self.image = ClusterImage()
        self.next_id = 1
        self.memory = memory or GroupMemory()
        self.now = 1_000
        self.log: dict[bytes, bytes | None] = {}
        self.shard = self.empty()
        for name in ("a", "b"):
            self.make(name, 2)

    def empty(self) -> GroupShard:
        """A shard before its log is read."""
        return GroupShard(
            limits=GroupLimits(memory=self.memory),
            new_member_id=lambda prefix: prefix,
            topics=Topics(lambda: self.image),
            share_session_ms=lambda _: SESSION_MS,
        )

    def make(self, name: str, count: int) -> None:
        """A topic with so many partitions, another one where there was one with fewer."""
        known = self.image.topics.get(name)
        topic_id = UUID(int=self.next_id) if known is None else known.topic_id
        self.next_id += known is None
        topic = TopicImage(name=name, topic_id=topic_id, partitions=(ONE,) * count)
        self.image = ClusterImage(
            topics=self.image.topics.updated({name: topic}), names=self.image.names.updated({topic_id: name})
        )

    def drop(self, name: str) -> None:
        """Delete a topic, and tell the group."""
        topic = self.image.topics.get(name)
        if topic is None:
            return
        self.image = ClusterImage(
            topics=self.image.topics.updated({name: None}), names=self.image.names.updated({topic.topic_id: None})
        )
        group = self.shard.groups.get("g")
        if isinstance(group, ShareGroup):
            self.carry_out(Decision(records=partitions.topics_deleted(group, [topic.topic_id]), reply=None))

    def carry_out(self, decision: Decision[Any]) -> Any:
        """Append and apply."""
        for record in decision.records:
            key, value = GroupShard.encode(record)
            self.log.pop(key, None)
            self.log[key] = value
            self.shard.apply(record, self.now)
        return decision.reply

    def group(self) -> ShareGroup:
        """The group."""
        group = self.shard.groups["g"]
        assert isinstance(group, ShareGroup)
        return group

    def share_group_heartbeat(
        self, member: str, epoch: int, *topics: str, begins: bool | None = True
    ) -> ShareHeartbeatReply:
        """A heartbeat; the share coordinator begins what it is asked for, refuses it, or is never heard of."""
        group = self.shard.groups.get("g") or self.shard.new_share_group("g")
        assert isinstance(group, ShareGroup)
        heartbeat = ShareHeartbeat(
            group_id="g", member_id=member, epoch=epoch, topics=frozenset(topics) if topics else None
        )
        reply: ShareHeartbeatReply = self.carry_out(
            share_group_heartbeat(group, heartbeat, LIMITS, now=self.now, wall_ms=self.now)
        )
        if reply.initialize and begins is not None:
            done = (
                (partitions.begun(self.group(), reply.initialize),)
                if begins
                else partitions.not_begun(self.group(), reply.initialize)
            )
            self.carry_out(Decision(records=done, reply=None))
        return reply

    def replayed(self) -> GroupShard:
        """What the log says."""
        shard = self.empty()
        for key, value in self.log.items():
            if value is not None:
                change = GroupShard.decode(key, value)
                assert change is not None
                shard.apply(change, self.now)
        return shard


def seen(shard: GroupShard) -> Any:
    """All of a group that the log says."""
    group = shard.groups.get("g")
    if group is None:
        return None
    assert isinstance(group, ShareGroup)
    known = group.partitions
    return (
        group.epoch,
        group.target_epoch,
        group.metadata_hash,
        dict(sorted(group.members.items())),
        {member_id: target for member_id, target in sorted(group.target.items()) if target},
        (known.initializing, known.initialized, known.deleting),
        group.state_name,
    )


def test_partitions_are_given_out_once_they_are_begun() -> None:
    """With the heartbeat after that; another topic's partitions and new ones of a topic follow."""
    bench = Bench()
    first = bench.share_group_heartbeat("m", 0, "a")
    assert first.assignment == {}
    a = bench.image.topics["a"].topic_id
    assert first.initialize == {a: NamedPartitions(name="a", partitions=frozenset({0, 1}))}
    second = bench.share_group_heartbeat("m", first.epoch)
    assert (second.epoch, second.assignment, second.initialize) == (first.epoch + 1, {a: (0, 1)}, {})
    assert bench.share_group_heartbeat("m", second.epoch).assignment is None
    bench.make("a", 3)
    third = bench.share_group_heartbeat("m", second.epoch)
    assert third.initialize == {a: NamedPartitions(name="a", partitions=frozenset({2}))}
    fourth = bench.share_group_heartbeat("m", third.epoch)
    assert fourth.assignment == {a: (0, 1, 2)}
    assert bench.share_group_heartbeat("m", fourth.epoch) == ShareHeartbeatReply(
        member_id="m", epoch=fourth.epoch, state_epoch=fourth.epoch
    )


def test_a_member_that_is_an_epoch_behind_is_told_again_what_it_has() -> None:
    """The answer with it was lost, and may have been the only one."""
    bench = Bench()
    first = bench.share_group_heartbeat("m", 0, "a")
    given = bench.share_group_heartbeat("m", first.epoch)
    assert given.assignment
    again = bench.share_group_heartbeat("m", first.epoch)
    assert (again.epoch, again.assignment) == (given.epoch, given.assignment)
    assert bench.share_group_heartbeat("m", again.epoch).assignment is None


def test_what_could_not_be_begun_is_tried_again() -> None:
    """With the next heartbeat where it was refused, after a while where nothing was heard."""
    bench = Bench()
    epoch = bench.share_group_heartbeat("m", 0, "a", begins=False).epoch
    assert bench.share_group_heartbeat("m", epoch, begins=None).initialize
    assert not bench.share_group_heartbeat("m", epoch, begins=None).initialize
    bench.now += partitions.RETRY_MS
    assert bench.share_group_heartbeat("m", epoch).initialize
    assert bench.share_group_heartbeat("m", epoch).assignment


def test_a_topic_that_is_made_anew_is_begun_anew() -> None:
    """And one that was deleted leaves nothing, not even a group that is balanced with each heartbeat."""
    bench = Bench()
    epoch = bench.share_group_heartbeat("m", 0, "a").epoch
    epoch = bench.share_group_heartbeat("m", epoch).epoch
    bench.drop("a")
    epoch = bench.share_group_heartbeat("m", epoch).epoch
    assert not bench.group().partitions.initialized
    assert bench.share_group_heartbeat("m", epoch).epoch == epoch
    bench.make("a", 1)
    epoch = bench.share_group_heartbeat("m", epoch).epoch
    assert bench.share_group_heartbeat("m", epoch).assignment == {bench.image.topics["a"].topic_id: (0,)}


def test_sessions_end() -> None:
    """Also those that were read from a log; the others are rebalanced, and an empty group stays."""
    bench = Bench()
    bench.share_group_heartbeat("m1", 0, "a")
    bench.now += SESSION_MS // 2
    epoch = bench.share_group_heartbeat("m2", 0, "a").epoch
    bench.now += SESSION_MS // 2
    bench.carry_out(bench.shard.tick(bench.now))
    assert list(bench.group().members) == ["m2"]
    assert bench.share_group_heartbeat("m2", epoch).epoch > epoch
    replayed = bench.replayed()
    bench.shard = replayed
    bench.now += SESSION_MS
    deadline = replayed.next_deadline()
    assert deadline is not None
    assert deadline <= bench.now
    bench.carry_out(replayed.tick(bench.now))
    assert bench.group().state_name == "Empty"
    assert not bench.group().unused


def test_a_clock_that_is_set_back_keeps_nobody_from_partitions() -> None:
    """An assignment that seems to be of the future was not computed a moment ago."""
    bench = Bench()
    limits = replace(LIMITS, assignment_interval_ms=1_000)

    def beats(member: str, epoch: int, wall_ms: int) -> ShareHeartbeatReply:
        heartbeat = ShareHeartbeat(group_id="g", member_id=member, epoch=epoch, topics=frozenset({"a"}))
        group = bench.shard.groups.get("g") or bench.shard.new_share_group("g")
        assert isinstance(group, ShareGroup)
        reply: ShareHeartbeatReply = bench.carry_out(
            share_group_heartbeat(group, heartbeat, limits, now=bench.now, wall_ms=wall_ms)
        )
        if reply.initialize:
            bench.carry_out(Decision(records=(partitions.begun(bench.group(), reply.initialize),), reply=None))
        return reply

    hour_ms = 3_600_000
    for step in range(3):
        beats("early", 0 if not step else bench.group().members["early"].epoch, hour_ms + step * 2_000)
    beats("late", 0, 5_000)
    assert bench.group().target_epoch == bench.group().epoch


def test_who_may_not_is_refused() -> None:
    """One more than may be, one who is unknown, one in another epoch, one who would hold too much; none of them leaves anything."""
    bench = Bench()
    for member in ("m1", "m2", "m3"):
        epoch = bench.share_group_heartbeat(member, 0, "a").epoch
    for member, said, code in (
        ("m4", 0, ErrorCode.GROUP_MAX_SIZE_REACHED),
        ("m4", 3, ErrorCode.GROUP_MAX_SIZE_REACHED),
        ("m3", epoch + 1, ErrorCode.FENCED_MEMBER_EPOCH),
    ):
        with pytest.raises(KafkaError, match=f"^{code.name}:"):
            bench.share_group_heartbeat(member, said, "a")
    bench.carry_out(leave(bench.group(), "m3"))
    with pytest.raises(KafkaError, match=r"^UNKNOWN_MEMBER_ID:"):
        bench.share_group_heartbeat("m3", 1)
    with pytest.raises(KafkaError, match=r"^UNKNOWN_MEMBER_ID:"):
        leave(bench.group(), "m3")
    small = Bench(GroupMemory(limit=2_000, group_limit=2_000))
    with pytest.raises(KafkaError, match=r"^GROUP_MAX_SIZE_REACHED:"):
        small.share_group_heartbeat("m", 0, "x" * 2_000)
    assert not small.shard.groups
    assert small.memory.used == 0


STEPS = st.tuples(
    st.sampled_from(["beat", "join", "leave", "wait", "make", "drop", "forget", "forgotten", "delete"]),
    st.sampled_from(["m1", "m2", "m3", "m4"]),
    st.sets(st.sampled_from(["a", "b", "c"]), min_size=1),
    st.sampled_from([True, False, None]),
)


@settings(max_examples=200)
@given(st.lists(STEPS, max_size=25))
def test_the_log_says_what_is_in_force(steps: list[Any]) -> None:
    """A reader of the last record of each key has the same group; when all have sent heartbeats all that is read is given out."""
    bench = Bench()
    for what, member, topics, begins in steps:
        group = bench.shard.groups.get("g")
        known = group.members.get(member) if isinstance(group, ShareGroup) else None
        try:
            if what == "join":
                bench.share_group_heartbeat(member, 0, *topics, begins=begins)
            elif what == "beat" and known is not None:
                bench.share_group_heartbeat(member, known.epoch, begins=begins)
            elif what == "leave" and known is not None:
                bench.carry_out(leave(bench.group(), member))
            elif what == "wait":
                bench.now += 20_000
                bench.carry_out(bench.shard.tick(bench.now))
            elif what == "make":
                name = min(topics)
                bench.make(name, len(bench.image.topics[name].partitions) + 1 if name in bench.image.topics else 1)
            elif what == "drop":
                bench.drop(min(topics))
            elif what in {"forget", "forgotten"} and isinstance(group, ShareGroup) and group.empty:
                ids = [bench.image.topics[name].topic_id for name in sorted(topics) if name in bench.image.topics]
                records = partitions.forget(group, ids)[1] if what == "forget" else partitions.forgotten(group, ids)
                bench.carry_out(Decision(records=records, reply=None))
            elif what == "delete" and isinstance(group, ShareGroup) and group.empty:
                bench.carry_out(Decision(records=partitions.forget_all(group)[1], reply=None))
                bench.carry_out(bench.shard.delete_group("g"))
                assert "g" not in bench.shard.groups
                assert not any(bench.log.values())
        except KafkaError as problem:
            if problem.code is not ErrorCode.GROUP_MAX_SIZE_REACHED:
                raise
        assert seen(bench.replayed()) == seen(bench.shard)
        del group, known  # one that is deleted gives back what it holds when no reference is left
    settle(bench)


def settle(bench: Bench) -> None:
    """All members send heartbeats until nothing changes."""
    group = bench.shard.groups.get("g")
    if not isinstance(group, ShareGroup):
        assert bench.memory.used == 0
        return
    for _ in range(5):
        bench.now += partitions.RETRY_MS
        for member in tuple(group.members.values()):
            bench.share_group_heartbeat(member.member_id, group.members[member.member_id].epoch)
    for name in group.subscribed:
        topic = bench.image.topics.get(name)
        if topic is not None:
            given_out = {number for member in group for number in member.assigned.get(topic.topic_id, ())}
            assert given_out == set(range(len(topic.partitions)))
    before = group.epoch
    for member in tuple(group.members.values()):
        bench.share_group_heartbeat(member.member_id, member.epoch)
    assert group.epoch == before
