"""Large groups are balanced a step at a time, and what comes of it is in force only where it is still of use."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.modern.balance import Plan
from busway_bus.groups.modern.consumer_group import ConsumerGroup
from busway_bus.groups.modern.consumer_target import plan_of, write_part
from busway_bus.groups.modern.group import Assignment
from busway_bus.groups.modern.requests import ConsumerHeartbeat, ConsumerLimits, HeartbeatResult
from busway_bus.groups.modern.topics import Topics
from busway_bus.groups.shard import GroupShard
from busway_bus.groups.share.heartbeat import ShareGroupLimits, ShareHeartbeat, share_group_heartbeat
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.steps import finished
from busway_bus.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage

ONE = PartitionImage(leader=0, leader_epoch=0, partition_epoch=0, replicas=(0,), isr=(0,))


def image_of(counts: dict[str, int]) -> ClusterImage:
    """A cluster with these topics, and how many partitions they have."""
    topics = {
        name: TopicImage(name=name, topic_id=UUID(int=at), partitions=(ONE,) * count)
        for at, (name, count) in enumerate(counts.items(), 1)
    }
    empty = ClusterImage()
    names = {topic.topic_id: name for name, topic in topics.items()}
    return replace(empty, topics=empty.topics.updated(topics), names=empty.names.updated(names))


class Driver:
    """One shard with one group, whose groups are balanced at once up to a size."""

    def __init__(self, at_once: int, counts: dict[str, int]) -> None:
        self.image = image_of(counts)
        limits = GroupLimits(consumer=ConsumerLimits(assigned_at_once=at_once))
        self.shard = GroupShard(limits=limits, new_member_id=str, topics=Topics(lambda: self.image))
        self.now = 1_000_000

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.groups["g"]
        assert isinstance(group, ConsumerGroup)
        return group

    def carry_out(self, decision: Decision[Any]) -> Any:
        for change in decision.records:
            self.shard.apply(change, self.now)
        return decision.reply

    def consumer_heartbeat(
        self, name: str, epoch: int = 0, topics: Iterable[str] = ("t", "u"), **changes: Any
    ) -> HeartbeatResult:
        values: dict[str, Any] = {
            "instance_id": None,
            "rack_id": None,
            "client_id": "c",
            "client_host": "/",
            "rebalance_timeout_ms": 1_000,
            "topics": frozenset(topics),
            "regex": None,
            "assignor": None,
            "owned": {},
            **changes,
        }
        result = self.carry_out(
            self.shard.consumer_heartbeat("g", ConsumerHeartbeat(member_id=name, epoch=epoch, **values), self.now)
        )
        assert isinstance(result, HeartbeatResult)
        return result

    def plan(self) -> Plan:
        plan = plan_of(self.shard.groups, "g", self.now)
        assert plan is not None
        return plan

    def write(self, plan: Plan, targets: dict[str, Assignment]) -> bool:
        """Each member by itself, and the end."""
        parts = [*(({name: target}, False) for name, target in targets.items()), ({}, True)]
        return all(
            self.carry_out(write_part(self.shard.groups, plan, part, self.now, last=last)) for part, last in parts
        )


def test_a_small_group_is_balanced_within_the_heartbeat_and_a_large_one_after_it() -> None:
    """Both come to the same."""
    counts = {"t": 5, "u": 3}
    small, large = Driver(100, counts), Driver(11, counts)
    for driver in (small, large):
        for name in "abc":
            result = driver.consumer_heartbeat(name, topics="tu" if name == "a" else "t")
            assert result.unassigned is (driver is large and name != "a"), name
            driver.now += 2_000
    assert small.group.target_epoch == small.group.epoch == 4
    assert large.group.state_name == "Assigning"
    assert large.group.target_epoch == 2
    plan = large.plan()
    assert plan_of(large.shard.groups, "g", large.now) is None, "one at a time"
    assert large.write(plan, finished(plan.steps))
    plan.group.unplanned()
    assert large.group.target_epoch == 4
    assert large.group.target.keys() == small.group.target.keys()
    assert sum(len(numbers) for target in large.group.target.values() for numbers in target.values()) == 8
    assert plan_of(large.shard.groups, "g", large.now) is None, "there is nothing to do"


def test_what_happens_meanwhile_is_seen() -> None:
    """Who has left gets nothing, who has a static member's place gets what was meant for that one, and who has come is for the next time."""
    driver = Driver(0, {"t": 3, "u": 3})
    driver.consumer_heartbeat("a")
    driver.consumer_heartbeat("b", instance_id="seat")
    driver.consumer_heartbeat("c")
    plan = driver.plan()
    driver.consumer_heartbeat("a", epoch=-1)
    driver.consumer_heartbeat("b", epoch=-2, instance_id="seat")
    driver.consumer_heartbeat("b2", instance_id="seat")
    driver.consumer_heartbeat("d")
    assert driver.consumer_heartbeat("c").unassigned is False, "it is being done"
    targets = finished(plan.steps)
    assert driver.write(plan, targets)
    plan.group.unplanned()
    assert driver.group.target_epoch == plan.epoch < driver.group.epoch
    assert driver.group.target.keys() == {"b2", "c"}
    assert driver.group.target["b2"] == targets["b"]
    driver.now += 2_000
    assert driver.consumer_heartbeat("c").unassigned
    assert driver.plan().epoch == driver.group.epoch


@pytest.mark.parametrize("how", ["deleted", "begun anew", "overtaken"])
def test_a_plan_that_is_of_no_use_any_more_changes_nothing(how: str) -> None:
    """Its group is gone, another one has its name, or it has a newer target."""
    driver = Driver(0, {"t": 3, "u": 3})
    driver.consumer_heartbeat("a")
    plan = driver.plan()
    targets = finished(plan.steps)
    if how == "overtaken":
        plan.group.unplanned()
        driver.consumer_heartbeat("b")
        newer = driver.plan()
        assert driver.write(newer, finished(newer.steps))
    else:
        driver.consumer_heartbeat("a", epoch=-1)
        driver.carry_out(driver.shard.delete_group("g"))
    if how == "begun anew":
        driver.consumer_heartbeat("a")
    before = dict(driver.group.target) if how != "deleted" else {}
    assert not driver.write(plan, targets)
    if how != "deleted":
        assert driver.group.target == before


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@pytest.mark.parametrize("uneven", [False, True])
def test_no_step_is_the_whole_work(assignor: str, uneven: bool) -> None:
    """30 members and 700 topics are many steps, though each has the same share of them."""
    names = [f"{at:04}" for at in range(700)]
    driver = Driver(0, dict.fromkeys(names, 1))
    for at in range(30):
        driver.consumer_heartbeat(f"{at}", topics=names[at:] if uneven else names, assignor=assignor)
    steps = driver.plan().steps
    assert sum(1 for _ in steps) > 10


def with_rack(image: ClusterImage, rack: str) -> ClusterImage:
    """The cluster with its broker in this rack."""
    broker = BrokerImage(
        node_id=0,
        epoch=1,
        incarnation=UUID(int=1),
        addresses={},
        rack=rack,
        fenced=False,
        directories=(),
        features={},
    )
    return replace(image, brokers=image.brokers.updated({0: broker}))


def test_a_broker_that_has_another_rack_is_seen() -> None:
    """Racks are part of what a group knew of its topics (KIP-1101): its epoch goes up with the next heartbeat, and only with that one."""
    driver = Driver(100, {"t": 1})
    driver.image = with_rack(driver.image, "one")
    driver.consumer_heartbeat("a", topics="t")
    share_limits = ShareGroupLimits(
        max_size=9, session_timeout_ms=1_000, heartbeat_interval_ms=1_000, assignment_interval_ms=0
    )
    shares = driver.shard.new_share_group("s")

    def share(epoch: int) -> int:
        said = ShareHeartbeat(group_id="s", member_id="m", epoch=epoch, topics=frozenset("t"))
        decision = share_group_heartbeat(shares, said, share_limits, now=driver.now, wall_ms=driver.now)
        for key, value in decision.records:
            shares.apply(key, value, driver.now)
        return shares.epoch

    driver.consumer_heartbeat("a", epoch=driver.group.members["a"].epoch, topics="t")
    before = driver.group.epoch, share(0)
    driver.image = with_rack(driver.image, "two")
    for _ in range(2):
        driver.consumer_heartbeat("a", epoch=driver.group.members["a"].epoch, topics="t")
        assert (driver.group.epoch, share(shares.members["m"].epoch)) == (before[0] + 1, before[1] + 1)
