"""What groups and their committed offsets take, and what is refused where there is no room."""

import pytest

from busway_bus.groups.committed import OffsetMemory, offset_bytes
from busway_bus.groups.group import Committer
from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.modern.requests import ConsumerHeartbeat
from busway_bus.groups.offsets import NewOffset, TopicPartition
from busway_bus.groups.requests import Join
from busway_bus.groups.shard import GroupShard
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.limits import GROUP_BYTES
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.types import ZERO_UUID

ANYBODY = Committer(member_id="", instance_id=None, epoch=-1, version=8)
ONE = GROUP_BYTES + offset_bytes(("t", 0), "")


class Bench:
    """A shard with room for so much."""

    def __init__(self, limit: int) -> None:
        self.memory = OffsetMemory(limit)
        self.shard = GroupShard(limits=GroupLimits(offsets=self.memory), new_member_id=lambda prefix: prefix)

    def apply(self, decision: Decision) -> None:
        """What was decided is in the log."""
        for change in decision.records:
            self.shard.apply(change, 0)

    def commit(self, group_id: str, *places: TopicPartition, metadata: str = "", transactional: bool = False) -> None:
        """By anybody."""
        committer = Committer(member_id="", instance_id=None, epoch=-1, version=8, transactional=transactional)
        new = NewOffset(offset=5, leader_epoch=-1, metadata=metadata, topic_id=ZERO_UUID, retention_ms=-1)
        offsets = dict.fromkeys(places or (("t", 0),), new)
        decision = self.shard.commit(group_id, committer, offsets, now=0, wall_ms=0)
        if transactional:
            for change in decision.records:
                self.shard.apply_pending(change, 7, 0)
        else:
            self.apply(decision)

    def refuses(self, group_id: str, *places: TopicPartition, **options) -> bool:
        """Whether such a commit is refused, so that the client comes again."""
        try:
            self.commit(group_id, *places, **options)
        except KafkaError as problem:
            return problem.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        return False


def test_what_is_not_there_is_refused_where_there_is_no_room(caplog: pytest.LogCaptureFixture) -> None:
    """New groups and new offsets of known ones; offsets that are there move on, with words of metadata but not with pages."""
    bench = Bench(2 * ONE)
    bench.commit("a")
    bench.commit("b")
    assert bench.memory.used == 2 * ONE
    for _ in range(3):
        assert bench.refuses("c")
        assert bench.refuses("a", ("t", 1))
        assert bench.refuses("a", transactional=True, metadata="x" * 4_000)
        assert bench.refuses("a", metadata="x" * 4_000)
        assert not bench.refuses("a", metadata="some words")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "offsets.retention.minutes" in caplog.text
    bench.apply(bench.shard.delete_group("b"))
    assert bench.memory.used == ONE
    assert not bench.refuses("c")


def test_nobody_begins_a_group_where_there_is_no_room() -> None:
    """By either protocol; of a group that is there one becomes a member."""
    bench = Bench(ONE)
    bench.commit("a")
    join = Join(
        member_id="",
        instance_id=None,
        client_id="c",
        client_host="h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        needs_known_id=False,
        can_skip_assignment=False,
    )
    assert not bench.shard.create("a", join, 0).records
    heartbeat = ConsumerHeartbeat(
        member_id="m",
        epoch=0,
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="h",
        rebalance_timeout_ms=10_000,
        topics=frozenset({"t"}),
        regex=None,
        assignor=None,
        owned={},
    )
    assert bench.shard.consumer_heartbeat("a", heartbeat, 0).records
    for begin in (lambda: bench.shard.create("b", join, 0), lambda: bench.shard.consumer_heartbeat("b", heartbeat, 0)):
        with pytest.raises(KafkaError) as refusal:
            begin()
        assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_what_is_in_the_log_is_loaded_and_given_back_with_its_shard() -> None:
    """A log may hold more than would be let in, and so may the end of a transaction."""
    full, bench = Bench(100 * ONE), Bench(ONE)
    for number in range(5):
        full.commit(f"g-{number}")
        new = NewOffset(offset=5, leader_epoch=-1, metadata="", topic_id=ZERO_UUID, retention_ms=-1)
        decision = full.shard.commit(f"g-{number}", ANYBODY, {("t", 0): new}, now=0, wall_ms=0)
        bench.apply(decision)
    assert bench.memory.used == 5 * ONE
    assert bench.memory.full
    full.commit("g-0", ("t", 1), transactional=True)
    full.shard.end_transaction(7, 0, committed=True)
    assert full.memory.used == 5 * ONE + offset_bytes(("t", 1), "")
    memory = bench.memory
    del bench
    assert memory.used == 0
