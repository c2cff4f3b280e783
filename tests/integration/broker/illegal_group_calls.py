"""Calls of groups of both protocols, right and wrong ones.

Here: one class for each call.
Not here: who makes them (`illegal_callers`), in which order (`illegal_orders`), whom a classic member waits for
(`illegal_world`).
"""

from dataclasses import dataclass
from typing import Any

from tests.integration.broker.illegal_callers import LEFT_OUT, Member, compared, instance_named, topic_of
from tests.integration.broker.illegal_world import GIVEN, PATTERN, TOPIC, Outcome, World

from busway_protocol.messages.groups_classic import (
    DeleteGroupsRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from busway_protocol.messages.groups_modern import ConsumerGroupHeartbeatRequest


@dataclass(frozen=True)
class Join:
    """JoinGroup; a `number` that no member has yet is a new member, and so is one that comes without its id."""

    number: int
    protocol_type: str
    protocols: int
    version: int
    instance: str = "no one"
    anew: bool = False

    async def make(self, world: World) -> Outcome:
        who = self.number if self.number < len(world.classic) else None
        named = who is not None and not self.anew
        wrong = not self.protocol_type or not self.protocols
        modern = await world.modern_state()
        if not named and wrong and (modern == "Empty" or (not modern and await world.state() == "Dead")):
            # In Kafka a group comes to be, or takes the place of an empty one, although its first member is refused; in Busway not.
            return LEFT_OUT
        if named and modern == "Empty":
            # Kafka refuses a member that it does not know, and yet forgets the empty consumer group, whose records stay in its log.
            return LEFT_OUT
        instance = instance_named(self.instance, self.number) if self.version >= 5 else None
        if named and instance is not None and world.classic[self.number][1] < 0:
            # Kafka fails here (UNKNOWN_SERVER_ERROR), Busway knows no such static member.
            return LEFT_OUT
        if instance is not None and modern not in {"", "Empty", "Stable"}:
            # It may take the place of the last member of the consumer protocol while others still move. The classic group that is made then
            # has to rebalance in Busway; in Kafka it is stable with its target assignment, and partitions have no reader, or two.
            return LEFT_OUT
        says = None if named else ""
        answer = await world.join(
            who, self.protocol_type, self.protocols, self.version, instance=instance, member_id=says
        )
        return compared(answer, answer.generation_id)


@dataclass(frozen=True)
class Sync:
    """SyncGroup."""

    member: Member
    protocol_type: str
    protocol_name: str
    version: int

    async def make(self, world: World) -> Outcome:
        member_id, generation = self.member.of(world)
        request = SyncGroupRequest(
            group_id=world.group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self.member.instance_of(world) if self.version >= 3 else None,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=GIVEN)],
        )
        return compared(await world.sync(request, self.version))


@dataclass(frozen=True)
class Heartbeat:
    """Heartbeat."""

    member: Member
    version: int

    async def make(self, world: World) -> Outcome:
        member_id, generation = self.member.of(world)
        request = HeartbeatRequest(
            group_id=world.group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self.member.instance_of(world) if self.version >= 3 else None,
        )
        return compared(await world.ask(request, self.version))


@dataclass(frozen=True)
class Leave:
    """LeaveGroup, from version 3 on of several at once; `by_instance` names them by their instance ids alone, as an administrator does."""

    members: tuple[Member, ...]
    by_instance: bool
    version: int

    async def make(self, world: World) -> Outcome:
        who = [member.of(world) for member in self.members]
        for member, (member_id, generation) in zip(self.members, who, strict=True):
            handed_out = generation - member.shift
            asked_for_an_id = handed_out < 0 and (member_id, handed_out) in world.everyone
            if asked_for_an_id and await world.state() in {"Stable", "CompletingRebalance"}:
                # A member that leaves before it has joined has the others join again in Kafka; in Busway they stay as they are.
                return LEFT_OUT
        if self.version < 3:
            request = LeaveGroupRequest(group_id=world.group_id, member_id=who[0][0])
        else:
            identities = [
                MemberIdentity(
                    member_id="" if self.by_instance else member_id, group_instance_id=member.instance_of(world)
                )
                for member, (member_id, _) in zip(self.members, who, strict=True)
            ]
            request = LeaveGroupRequest(group_id=world.group_id, members=identities)
        return compared(await world.ask(request, self.version))


@dataclass(frozen=True)
class Commit:
    """OffsetCommit; version 10 names the topic by its id."""

    member: Member
    topics: tuple[str, ...]
    partition: int
    version: int

    async def make(self, world: World) -> Outcome:
        member_id, generation = self.member.of(world)
        offset = OffsetCommitRequestPartition(
            partition_index=self.partition, committed_offset=world.calls, committed_metadata=""
        )
        named = [topic_of(world, topic, by_id=self.version >= 10) for topic in self.topics]
        request = OffsetCommitRequest(
            group_id=world.group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=self.member.instance_of(world) if self.version >= 7 else None,
            topics=[OffsetCommitRequestTopic(**topic, partitions=[offset]) for topic in named],
        )
        answer = await world.ask(request, self.version)
        return compared(sorted(answer.topics, key=lambda topic: (topic.name, topic.topic_id)))


@dataclass(frozen=True)
class Forget:
    """OffsetDelete of one partition's offset."""

    topic: str

    async def make(self, world: World) -> Outcome:
        topic = OffsetDeleteRequestTopic(name=self.topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        return compared(await world.ask(OffsetDeleteRequest(group_id=world.group_id, topics=[topic])))


@dataclass(frozen=True)
class Delete:
    """DeleteGroups."""

    async def make(self, world: World) -> Outcome:
        return compared(await world.ask(DeleteGroupsRequest(groups_names=[world.group_id])))


@dataclass(frozen=True)
class ConsumerBeat:
    """ConsumerGroupHeartbeat; `epoch` stands for the member's own unless it is said. What it subscribes to, where it says so: `names`, a
    `pattern`, `both`, a `bad` pattern, or no pattern any more (`gone`)."""

    member: Member
    epoch: int | None
    whole: bool
    subscribes: str
    version: int

    async def make(self, world: World) -> Outcome:
        member_id, own = self.member.of(world)
        number, modern = self.member.number, self.member.kind == "modern"
        instance = self.member.instance_of(world)
        migrates = member_id in world.instances or instance in {world.instances[each] for each, _ in world.everyone} - {
            None
        }
        adds_nothing = migrates or (self.subscribes == "pattern" and self.version > 0)
        if self.epoch == 0 and adds_nothing and await world.state() not in {"Dead", "Empty", "Stable"}:
            # A group that migrates with one of its own members, or with a pattern that is not resolved yet, is rebalanced in Busway where
            # a partition has no reader, in Kafka never.
            return LEFT_OUT
        said: dict[str, Any] = {"topic_partitions": world.owned[number]} if modern else {}
        if self.epoch == 0:
            said = {"rebalance_timeout_ms": 20_000, "topic_partitions": []}
        request = ConsumerGroupHeartbeatRequest(
            group_id=world.group_id,
            member_id=member_id,
            member_epoch=own if self.epoch is None else self.epoch,
            instance_id=instance,
            **(said | self._subscription() if self.whole else {}),
        )
        resolved = request.subscribed_topic_regex != PATTERN or await world.has_pattern()
        answer = await world.ask(request, self.version)
        if answer.error_code:
            return compared(answer)
        if self.epoch == 0:
            world.instances[member_id] = instance
        if modern:
            world.modern[number] = (member_id, answer.member_epoch)
            if answer.assignment is not None:
                world.owned[number] = answer.assignment.topic_partitions
        if not resolved:
            await world.pattern_resolved()
        return compared(answer, answer.member_epoch)

    def _subscription(self) -> dict[str, Any]:
        names = {"subscribed_topic_names": [TOPIC]} if self.epoch == 0 or self.subscribes != "names" else {}
        if self.version < 1 or self.subscribes == "names":
            return names
        if self.subscribes == "pattern":
            return {"subscribed_topic_regex": PATTERN}
        return names | {"subscribed_topic_regex": {"both": PATTERN, "bad": "(", "gone": ""}[self.subscribes]}
