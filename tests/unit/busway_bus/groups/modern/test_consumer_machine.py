"""Consumer groups under any order of heartbeats, silence, changes of topics and failed writes.

What is checked: no partition is read by two members at once; what the log says, read again in any place, is what is in force; an answer
that is lost does no harm; at rest everything is read, evenly, and the group is stable.
"""

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.busway_bus.groups.live import live_shard

from busway_bus.coordinator.replay import apply_records, latest_records
from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.groups.modern.balance import Plan
from busway_bus.groups.modern.consumer_group import ConsumerGroup
from busway_bus.groups.modern.consumer_target import plan_of, write_part
from busway_bus.groups.modern.group import Assignment
from busway_bus.groups.modern.requests import ConsumerHeartbeat, ConsumerLimits, GroupSettings, HeartbeatResult
from busway_bus.groups.modern.topics import Topics
from busway_bus.groups.shard import GroupShard
from busway_bus.handlers.common.context import finished
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.limits import ASSIGNED_AT_ONCE_MAX
from busway_bus.metadata.image import ClusterImage, PartitionImage, TopicImage
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.builder import BatchBuilder

NAMES = ("a", "b", "c", "static", "again")
STATIC = {"static": "seat", "again": "seat"}
SESSION_MS, REBALANCE_MS = 10_000, 6_000
Owned = dict[UUID, tuple[int, ...]]


@dataclass(slots=True)
class Client:
    """What one client believes."""

    name: str
    member_id: str = ""
    epoch: int = 0
    owned: Owned = field(default_factory=dict)
    assigned: Owned = field(default_factory=dict)
    topics: frozenset[str] = frozenset()
    regex: str = ""


def state_of(group: ConsumerGroup) -> Any:
    """All that the log says of a group."""
    return (
        (group.epoch, group.metadata_hash, group.target_epoch, group.target_timestamp_ms),
        group.members,
        group.target,
        +group.subscribed,
        +group.by_regex,
        group.regexes,
        group.assignors,
        group.resolved,
        group.owners,
        group.static,
        group.state,
        group._unreconciled.keys(),
    )


class ConsumerGroups(RuleBasedStateMachine):
    """The driver of one shard with the clients of one group."""

    at_once = ASSIGNED_AT_ONCE_MAX
    """How large a group is that is balanced within a heartbeat."""

    def __init__(self) -> None:
        super().__init__()
        self.plans: list[Plan] = []
        self.outcomes: list[tuple[Plan, dict[str, Assignment], bool]] = []
        self.now, self.ids, self.full = 1_000_000_000, 0, 0
        self.image = ClusterImage()
        self.memory = GroupMemory()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.shard = self.fresh(self.memory)
        self.clients = {name: Client(name) for name in NAMES}
        self.unresolved: tuple[str, ...] = ()
        self.topic("t", 3)

    def fresh(self, memory: GroupMemory) -> GroupShard:
        consumer = ConsumerLimits(
            assigned_at_once=self.at_once,
            of_group=lambda group_id: GroupSettings(session_timeout_ms=SESSION_MS, assignment_interval_ms=500),
        )
        limits = GroupLimits(memory=memory, consumer=consumer)
        return live_shard(limits=limits, new_member_id=str, topics=Topics(lambda: self.image))

    @property
    def group(self) -> ConsumerGroup | None:
        group = self.shard.groups.get("g")
        assert group is None or isinstance(group, ConsumerGroup)
        return group

    def carry_out(self, decision: Decision[Any]) -> bool:
        """Append and apply, as the runtime does; False where there is no room."""
        if decision.records and self.full:
            self.full -= 1
            return False
        for change in decision.records:
            self.log.append(self.shard.encode(change))
            self.shard.apply(change, self.now)
        return True

    def forget(self, client: Client) -> None:
        self.clients[client.name] = Client(client.name)

    @initialize()
    def one_reads(self) -> None:
        self.join("a", frozenset("t"), "", False, None)
        self.now += 600

    # What happens

    @rule(name=st.sampled_from("tuv"), partitions=st.integers(1, 5))
    def topic(self, name: str, partitions: int) -> None:
        """One is made, or grows."""
        known = self.image.topics.get(name)
        count = max(partitions, len(known.partitions) if known else 0)
        self.ids += 1
        topic_id = known.topic_id if known else UUID(int=self.ids)
        partition = PartitionImage(leader=0, leader_epoch=0, partition_epoch=0, replicas=(0,), isr=(0,))
        made = TopicImage(name=name, topic_id=topic_id, partitions=(partition,) * count)
        self.image = replace(
            self.image, topics=self.image.topics.updated({name: made}), names=self.image.names.updated({topic_id: name})
        )

    @rule(name=st.sampled_from("tuv"))
    def no_topic(self, name: str) -> None:
        known = self.image.topics.get(name)
        if known is not None:
            self.image = replace(
                self.image,
                topics=self.image.topics.updated({name: None}),
                names=self.image.names.updated({known.topic_id: None}),
            )

    @rule(
        name=st.sampled_from(NAMES),
        topics=st.sampled_from([frozenset("t"), frozenset("tu"), frozenset("uv"), frozenset()]),
        regex=st.sampled_from(["", "", "[tu]", "v.*"]),
        lost=st.sampled_from([False, False, False, True]),
        assignor=st.sampled_from([None, "range"]),
    )
    def join(self, name: str, topics: frozenset[str], regex: str, lost: bool, assignor: str | None) -> None:
        client = self.clients[name]
        self.ids += 1
        client.member_id = client.member_id or f"{name}/{self.ids}"
        client.epoch, client.owned, client.assigned = 0, {}, {}
        client.topics, client.regex = topics, regex
        self.send(client, lost=lost, whole=True, assignor=assignor)

    @rule(
        name=st.sampled_from(NAMES),
        lost=st.sampled_from([False, False, False, True]),
        obeys=st.booleans(),
        whole=st.booleans(),
    )
    def heartbeat(self, name: str, lost: bool, obeys: bool, whole: bool) -> None:
        client = self.clients[name]
        if not client.member_id:
            return
        if obeys:
            client.owned = client.assigned
        self.send(client, lost=lost, whole=whole or obeys)

    def send(self, client: Client, *, lost: bool, whole: bool, assignor: str | None = None) -> None:
        heartbeat = ConsumerHeartbeat(
            member_id=client.member_id,
            epoch=client.epoch,
            instance_id=STATIC.get(client.name),
            rack_id=None,
            client_id=client.name,
            client_host="/127.0.0.1",
            rebalance_timeout_ms=REBALANCE_MS if whole else -1,
            topics=client.topics if whole else None,
            regex=client.regex if whole else None,
            assignor=assignor,
            owned=client.owned if whole else None,
        )
        try:
            decision = self.shard.consumer_heartbeat("g", heartbeat, self.now)
        except KafkaError as problem:
            if problem.code is not ErrorCode.UNRELEASED_INSTANCE_ID or not lost:
                self.forget(client)
            return
        answer: HeartbeatResult = decision.reply
        if not self.carry_out(decision):
            return
        self.unresolved = answer.unresolved or self.unresolved
        plan = plan_of(self.shard.groups, "g", self.now) if answer.unassigned else None
        if plan is not None:
            self.plans.append(plan)
        if lost:
            return
        client.epoch = answer.epoch
        if answer.assigned is not None:
            client.assigned = dict(answer.assigned)
            # What it gets beside what it has it reads at once; what it is to give up it has until it says so.
            client.owned = {
                topic: tuple(sorted({*client.owned.get(topic, ()), *client.assigned.get(topic, ())}))
                for topic in {*client.owned, *client.assigned}
            }
        self.no_partition_has_two_readers()

    @rule(name=st.sampled_from(NAMES), epoch=st.sampled_from([-1, -2]))
    def leave(self, name: str, epoch: int) -> None:
        client = self.clients[name]
        instance_id = STATIC.get(name)
        if not client.member_id or (epoch == -2 and instance_id is None):
            return
        heartbeat = ConsumerHeartbeat(
            member_id=client.member_id,
            epoch=epoch,
            instance_id=instance_id,
            rack_id=None,
            client_id=name,
            client_host="/",
            rebalance_timeout_ms=-1,
            topics=None,
            regex=None,
            assignor=None,
            owned=None,
        )
        self.forget(client)
        try:
            self.carry_out(self.shard.consumer_heartbeat("g", heartbeat, self.now))
        except KafkaError:
            return

    @rule(name=st.sampled_from(NAMES))
    def dies(self, name: str) -> None:
        """Without a word; its session ends some time."""
        self.forget(self.clients[name])

    @rule()
    def resolve(self) -> None:
        """What was asked for is resolved by now, in the topics that there are."""
        resolved = {
            regex: frozenset(name for name in self.image.topics if name in ("tu" if regex == "[tu]" else "v"))
            for regex in self.unresolved
        }
        if resolved and not self.carry_out(self.shard.resolve("g", resolved, self.image.topics, self.now)):
            self.shard.resolution_failed("g")
        self.unresolved = ()

    @rule(steps=st.integers(1, 3))
    def balance(self, steps: int) -> None:
        """A group that is balanced a step at a time gets on with it, whatever has become of it meanwhile; each member is written by itself."""
        for _ in range(steps):
            if self.outcomes:
                plan, part, last = self.outcomes.pop(0)
                decision = write_part(self.shard.groups, plan, part, self.now, last=last)
                if not self.carry_out(decision) or not decision.reply or last:
                    self.outcomes = [outcome for outcome in self.outcomes if outcome[0] is not plan]
                    plan.group.unplanned()
            elif self.plans:
                try:
                    next(self.plans[0].steps)
                except StopIteration as over:
                    plan = self.plans.pop(0)
                    self.outcomes = [(plan, {name: target}, False) for name, target in over.value.items()]
                    self.outcomes.append((plan, {}, True))

    @rule(ms=st.sampled_from([1, 600, 3_000, 6_500, 11_000]))
    def time_passes(self, ms: int) -> None:
        end = self.now + ms
        while (deadline := self.shard.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.carry_out(self.shard.tick(self.now))
        self.now = end

    @rule()
    def delete(self) -> None:
        self.carry_out(self.shard.delete_group("g"))

    @rule(count=st.integers(1, 2))
    def disk_is_full(self, count: int) -> None:
        self.full = count

    @rule(behind_ms=st.sampled_from([0, 0, 3_600_000, -3_600_000]))
    def crash(self, behind_ms: int) -> None:
        """Another coordinator goes on from the log, whose clock may tell another time."""
        self.memory = GroupMemory()
        self.now -= behind_ms
        self.shard = self.loaded(self.memory)

    def loaded(self, memory: GroupMemory) -> GroupShard:
        shard = self.fresh(memory)
        builder = BatchBuilder()
        for key, value in self.log:
            builder.append(0, key, value)
        batches = [builder.build()] if self.log else []
        for _ in apply_records(shard, finished(latest_records(shard, batches)), self.now):
            pass
        return shard

    @rule()
    def rest(self) -> None:
        """All members follow their responses until nothing changes: all is read, and the group is stable."""
        self.full = 0
        for _ in range(40):
            self.resolve()
            while self.plans or self.outcomes:
                self.balance(1)
            self.now += 600
            for client in tuple(self.clients.values()):
                self.heartbeat(client.name, False, True, False)
            self.time_passes(500)
        group = self.group
        if group is None or not group.members:
            return
        assert group.state_name == "Stable"
        assert set(group.resolved) == set(group.regexes), "what was not resolved is asked for again"
        names = {client.member_id: client for client in self.clients.values() if client.member_id}
        for member in group:
            read = {self.image.names.get(topic): set(numbers) for topic, numbers in member.assigned.items()}
            assert None not in read, "of topics that are gone nothing is left"
            assert {topic: set(numbers) for topic, numbers in names[member.member_id].owned.items()} == {
                topic: set(numbers) for topic, numbers in member.assigned.items()
            }
        wanted = {topic for member in group for topic in group.topics_of(member) if topic in self.image.topics}
        for topic in wanted:
            image = self.image.topics[topic]
            assert set(group.owners.get(image.topic_id, {})) == set(range(len(image.partitions)))

    # What holds always

    @invariant()
    def no_partition_has_two_readers(self) -> None:
        """Among those that are members; who was put out and does not know it yet cannot commit."""
        group = self.group
        if group is None:
            return
        readers: dict[tuple[UUID, int], str] = {}
        for client in self.clients.values():
            if client.member_id not in group.members or not client.epoch:
                continue
            for topic, numbers in client.owned.items():
                for number in numbers:
                    other = readers.setdefault((topic, number), client.member_id)
                    assert other == client.member_id, (topic, number)

    @invariant()
    def the_log_says_what_is_in_force(self) -> None:
        memory = GroupMemory()
        loaded = self.loaded(memory).groups.get("g")
        if self.group is None:
            assert loaded is None
            return
        assert isinstance(loaded, ConsumerGroup)
        assert state_of(loaded) == state_of(self.group)
        assert memory.used == self.memory.used
        assert memory.share._used_by == self.memory.share._used_by


@pytest.mark.parametrize("regex", ["", "[tu]"])
def test_a_coordinator_whose_clock_is_behind_balances_at_once(regex: str) -> None:
    """What the log says of the time is what another clock said; who waits for it would wait for as long as the clock was set back."""
    driver = ConsumerGroups()
    driver.join("a", frozenset() if regex else frozenset("t"), regex, False, None)
    driver.rest()
    driver.crash(behind_ms=3_600_000)
    driver.topic("t", 4)
    driver.topic("u", 1)
    driver.rest()


def test_what_a_host_holds_does_not_depend_on_whether_a_pattern_matched_the_same_topics_first() -> None:
    driver = ConsumerGroups()
    driver.one_reads()
    driver.join("b", frozenset("tu"), "[tu]", False, None)
    driver.resolve()
    driver.join("a", frozenset("tu"), "", False, None)
    driver.the_log_says_what_is_in_force()


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(max_examples=60, stateful_step_count=40)


class LargeConsumerGroups(ConsumerGroups):
    """The same where every group is so large that it is balanced a step at a time, of a member each."""

    at_once = 0


TestLargeConsumerGroups = LargeConsumerGroups.TestCase
TestLargeConsumerGroups.settings = settings(max_examples=30, stateful_step_count=60)
