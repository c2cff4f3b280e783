"""What a shard notices of a group's rebalances: who came and went, in its own words, and which partitions moved."""

import json
from dataclasses import replace

from tests.unit.busway_bus.groups.live import live_shard

from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.requests import Join, Sync
from busway_protocol.assignors.consumer_protocol import encode_assignment, encode_subscription
from busway_protocol.assignors.subscription import Subscription

SPOKEN = (("range", encode_subscription(Subscription(topics=("t",)))),)


def join(client: str, member_id: str = "", reason: str | None = None) -> Join:
    """The request of a client, which speaks an old version."""
    return Join(
        member_id=member_id,
        instance_id=None,
        client_id=client,
        client_host="/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        protocol_type="consumer",
        protocols=SPOKEN,
        needs_known_id=False,
        can_skip_assignment=True,
        reason=reason,
    )


class Group:
    """A group `g` and its clock."""

    def __init__(self) -> None:
        limits = GroupLimits(initial_rebalance_delay_ms=0)
        self.shard, self.now = live_shard(limits=limits, new_member_id=lambda client: f"{client}-1"), 0
        self.written = []

    def run(self, operation, *arguments, **options):
        """Decide, and apply."""
        self.now += 1
        decision = operation("g", *arguments, self.now, **options)
        for record in decision.records:
            self.shard.apply(record, self.now)
            self.written.append(record)

    def join(self, request: Join) -> None:
        """Join, or join again."""
        self.run(self.shard.create, request)
        self.run(self.shard.join, request, object())

    def share(self, leader: str, generation: int, **shares) -> None:
        """The leader's assignment."""
        made = tuple((f"{client}-1", encode_assignment(places, version=0)) for client, places in shares.items())
        self.run(
            self.shard.sync, Sync(member_id=leader, instance_id=None, generation=generation, assignments=made), object()
        )

    def explanation(self):
        """Decode the explanation of the group, None if there is none."""
        return json.loads(self.shard.explanation("g") or "null")


def test_members_say_why_and_partitions_are_followed() -> None:
    """One joins, a second, the first joins again for it, and leaves; each with its reason."""
    group = Group()
    assert group.explanation() is None
    group.join(join("a", reason="first of all"))
    assert [(entry["epoch"], entry["reasons"][0]["reason"]) for entry in group.explanation()] == [(-1, "first of all")]
    group.share("a-1", 1, a=[("t", 0), ("t", 1)])
    (first,) = group.explanation()
    assert first["reasons"] == [
        {"what": "joined", "member": "a-1", "client": "a", "host": "/h", "reason": "first of all"}
    ]
    assert [(move["partition"], move["from"], move["to"]) for move in first["moves"]] == [
        (0, None, "a-1"),
        (1, None, "a-1"),
    ]
    assert (first["epoch"], first["members"], first["moves_complete"]) == (1, 1, True)
    group.join(join("b"))
    group.join(join("a", "a-1", "others have come"))
    group.share("a-1", 2, a=[("t", 0)], b=[("t", 1)])
    second = group.explanation()[-1]
    assert [(reason["what"], reason["member"]) for reason in second["reasons"]] == [("joined", "b-1")]
    assert second["moves"] == [{"topic": "t", "partition": 1, "from": "a-1", "to": "b-1"}]
    group.run(group.shard.leave, [("a-1", None)], reasons=["shutting down"])
    group.join(join("b", "b-1"))
    group.share("b-1", 3, b=[("t", 0), ("t", 1)])
    third = group.explanation()[-1]
    assert [(reason["what"], reason["member"], reason["reason"]) for reason in third["reasons"]] == [
        ("left", "a-1", "shutting down")
    ]
    assert third["moves"] == [{"topic": "t", "partition": 0, "from": "a-1", "to": "b-1"}]
    group.join(join("b", "b-1", "the topics have changed"))
    group.share("b-1", 4, b=[("t", 0), ("t", 1)])
    fourth = group.explanation()[-1]
    assert [(reason["what"], reason["reason"]) for reason in fourth["reasons"]] == [
        ("joined again", "the topics have changed")
    ]
    assert fourth["moves"] == []


def test_who_is_silent_and_who_is_late_are_told_apart() -> None:
    """A session that ends; and a member that lives and does not ask for its assignment."""
    group = Group()
    group.join(join("a"))
    group.share("a-1", 1, a=[("t", 0)])
    group.now += 10_000
    for record in group.shard.tick(group.now).records:
        group.shard.apply(record, group.now)
    (_, silent) = group.explanation()
    assert [(reason["what"], reason["reason"]) for reason in silent["reasons"]] == [
        ("timed out", "no heartbeat within its session of 10000 ms")
    ]
    assert silent["moves"] == [{"topic": "t", "partition": 0, "from": "a-1", "to": None}]
    group.join(join("b"))
    for _ in range(5):
        group.now += 5_000
        group.shard.heartbeat("g", "b-1", None, 3, group.now)
        for record in group.shard.tick(group.now).records:
            group.shard.apply(record, group.now)
    assert [reason["what"] for reason in group.explanation()[-1]["reasons"]] == ["joined", "was late"]


def test_what_the_log_says_of_earlier_times_is_not_told() -> None:
    """It has no reasons in it."""
    group, after = Group(), Group()
    group.join(join("a"))
    group.share("a-1", 1, a=[("t", 0)])
    after.shard.live = False
    for record in group.written:
        after.shard.apply(record, 0)
    after.shard.live = True
    assert after.explanation() == []


def test_whoever_asks_for_an_id_is_no_static_member_that_came_back() -> None:
    """Not even beside one whose instance id has no letter."""
    group = Group()
    group.join(replace(join("a"), instance_id=""))
    before = group.explanation()
    group.join(replace(join("b"), needs_known_id=True))
    assert group.explanation() == before
