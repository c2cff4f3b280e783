"""A shard with one group whose members use both protocols, on a clock that only moves when asked.

Here: what the tests of groups that change their protocol share.
"""

from dataclasses import replace
from typing import Any
from uuid import UUID

from tests.unit.busway_bus.groups.live import live_shard

from busway_bus.coordinator.replay import apply_records, latest_records
from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.groups.modern.requests import ConsumerHeartbeat, ConsumerLimits, GroupSettings, MigrationPolicy
from busway_bus.groups.modern.topics import Topics
from busway_bus.groups.requests import Join, Sync
from busway_bus.groups.shard import GroupShard
from busway_bus.handlers.common.context import finished
from busway_bus.kernel.decision import PARKED, Decision
from busway_bus.metadata.image import ClusterImage, PartitionImage, TopicImage
from busway_protocol.assignors.consumer_protocol import encode_assignment, encode_subscription
from busway_protocol.assignors.subscription import Subscription
from busway_protocol.errors import ErrorCode
from busway_protocol.records.builder import BatchBuilder

T = UUID(int=7)


def cluster() -> ClusterImage:
    """One topic of four partitions."""
    image, partition = (
        ClusterImage(),
        PartitionImage(leader=0, leader_epoch=0, partition_epoch=0, replicas=(0,), isr=(0,)),
    )
    made = TopicImage(name="t", topic_id=T, partitions=(partition,) * 4)
    return replace(image, topics=image.topics.updated({"t": made}), names=image.names.updated({T: "t"}))


class Driver:
    """One shard, its clock and its log; `batches` has what was appended together."""

    def __init__(self, policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL, **limits: Any) -> None:
        self.policy, self.limits = policy, {"initial_rebalance_delay_ms": 0, **limits}
        self.now, self.ids = 1_000_000, 0
        self.image = cluster()
        self.memory = GroupMemory()
        self.batches: list[list[tuple[bytes, bytes | None]]] = []
        self.answers: dict[str, Any] = {}
        self.shard = self.fresh(self.memory)

    def fresh(self, memory: GroupMemory) -> GroupShard:
        consumer = ConsumerLimits(
            migration=self.policy,
            of_group=lambda group_id: GroupSettings(session_timeout_ms=10_000, assignment_interval_ms=0),
        )
        limits = GroupLimits(memory=memory, consumer=consumer, **self.limits)
        return live_shard(limits=limits, new_member_id=self.new_id, topics=Topics(lambda: self.image))

    def new_id(self, prefix: str) -> str:
        self.ids += 1
        return f"{prefix}-{self.ids}"

    def carry_out(self, decision: Decision[Any], waiter: str = "") -> Any:
        """As the runtime does."""
        if decision.records:
            self.batches.append([self.shard.encode(change) for change in decision.records])
        for change in decision.records:
            self.shard.apply(change, self.now)
        self.answers.update(decision.responses)
        if waiter and decision.reply is not PARKED:
            self.answers[waiter] = decision.reply
        return None if decision.reply is PARKED else decision.reply

    def loaded(self, memory: GroupMemory, batches: int | None = None) -> GroupShard:
        """What another coordinator reads in the log."""
        shard, builder = self.fresh(memory), BatchBuilder()
        pairs = [pair for batch in self.batches[:batches] for pair in batch]
        for key, value in pairs:
            builder.append(0, key, value)
        for _ in apply_records(shard, finished(latest_records(shard, [builder.build()] if pairs else [])), self.now):
            pass
        return shard

    def crash(self) -> None:
        """Another coordinator goes on from the log."""
        self.memory = GroupMemory()
        self.shard = self.loaded(self.memory)

    def join(self, waiter: str, member_id: str = "", owned: tuple[int, ...] = (), **changes: Any) -> Any:
        """A classic member joins; the answer if there is one already."""
        places = tuple(("t", number) for number in owned)
        values: dict[str, Any] = {
            "member_id": member_id,
            "instance_id": None,
            "client_id": "c",
            "client_host": "/",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 6_000,
            "protocol_type": "consumer",
            "protocols": (("range", encode_subscription(Subscription(topics=("t",), owned_partitions=places))),),
            "needs_known_id": False,
            "can_skip_assignment": True,
            **changes,
        }
        request = Join(**values)
        self.answers.pop(waiter, None)
        self.carry_out(self.shard.create("g", request, self.now))
        self.carry_out(self.shard.join("g", request, waiter, self.now), waiter)
        return self.answers.get(waiter)

    def sync(self, waiter: str, joined: Any, instance_id: str | None = None, **given: bytes) -> Any:
        """A classic member asks for its assignment; the leader gives it."""
        request = Sync(
            member_id=joined.member_id,
            instance_id=instance_id,
            generation=joined.generation,
            assignments=tuple((member_id.replace("_", "-"), bytes_) for member_id, bytes_ in given.items()),
        )
        self.carry_out(self.shard.sync("g", request, waiter, self.now), waiter)
        return self.answers.get(waiter)

    def heartbeat(self, joined: Any) -> ErrorCode:
        """Of a classic member."""
        code: ErrorCode = self.carry_out(self.shard.heartbeat("g", joined.member_id, None, joined.generation, self.now))
        return code

    def consumer_heartbeat(self, member_id: str, epoch: int = 0, **changes: Any) -> Any:
        """Of a member of the consumer protocol."""
        values: dict[str, Any] = {
            "member_id": member_id,
            "epoch": epoch,
            "instance_id": None,
            "rack_id": None,
            "client_id": "m",
            "client_host": "/",
            "rebalance_timeout_ms": 6_000,
            "topics": frozenset("t"),
            "regex": None,
            "assignor": None,
            "owned": {},
            **changes,
        }
        return self.carry_out(self.shard.consumer_heartbeat("g", ConsumerHeartbeat(**values), self.now))

    def time_passes(self, ms: int) -> None:
        """Every deadline on its time."""
        end = self.now + ms
        while (deadline := self.shard.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.carry_out(self.shard.tick(self.now))
        self.now = end

    def settled(self) -> Any:
        """One classic member that has all partitions; the response to its join."""
        joined = self.join("a")
        everything = encode_assignment([("t", number) for number in range(4)])
        self.sync("a's sync", joined, **{joined.member_id.replace("-", "_"): everything})
        return joined

    @property
    def group(self) -> Any:
        return self.shard.groups["g"]
