"""The share coordinator's shard: what it keeps, what it refuses, what it writes, and that its log says it all."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway_bus.kernel.decision import Decision
from busway_bus.kernel.limits import SHARE_STATE_BATCHES_MAX
from busway_bus.kernel.share_state import SharePartitionKey, ShareState, StateBatch
from busway_bus.share_state.records import ShareSnapshotValue, ShareUpdateValue
from busway_bus.share_state.shard import Change, Kept, ShareStateShard
from busway_protocol.errors import ErrorCode, KafkaError

TOPICS = (UUID(int=1), UUID(int=2))
MISSING = UUID(int=9)
KEY = SharePartitionKey(group_id="g", topic_id=TOPICS[0], partition=0)


class Bench:
    """A shard on a clock that only moves when asked; its records go through bytes into a log."""

    def __init__(self, updates_per_snapshot: int = 3) -> None:
        self.topics = set(TOPICS)
        self.updates_per_snapshot = updates_per_snapshot
        self.shard = self.empty()
        self.wall_ms = 1_000
        self.log: list[tuple[int, bytes, bytes | None]] = []
        self.next_offset = 0

    def empty(self) -> ShareStateShard:
        """A shard before its log is read."""
        return ShareStateShard(
            exists=lambda topic_id, number: topic_id in self.topics and 0 <= number < 3,
            updates_per_snapshot=self.updates_per_snapshot,
        )

    def carry_out(self, decision: Decision[Any]) -> Any:
        """Append and apply."""
        for record in decision.records:
            self.log.append((self.next_offset, *ShareStateShard.encode(record)))
            self.shard.at(self.next_offset)
            self.shard.apply(record, 0)
            self.next_offset += 1
        return decision.reply

    def begin(self, key: SharePartitionKey = KEY, state_epoch: int = 0, start_offset: int = -1) -> None:
        """InitializeShareGroupState."""
        self.carry_out(
            self.shard.initialize(
                key, state_epoch=state_epoch, start_offset=start_offset, wall_ms=self.wall_ms, has_room=True
            )
        )

    def read(self, key: SharePartitionKey = KEY, leader_epoch: int = -1) -> ShareState:
        """ReadShareGroupState."""
        state: ShareState = self.carry_out(self.shard.read(key, leader_epoch=leader_epoch, wall_ms=self.wall_ms))
        return state

    def write(
        self,
        *batches: StateBatch,
        key: SharePartitionKey = KEY,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = -1,
        complete: int = -1,
    ) -> None:
        """WriteShareGroupState."""
        change = ShareState(
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete,
            batches=batches,
        )
        self.carry_out(self.shard.write(key, change, wall_ms=self.wall_ms, room_bytes=1_000_000))

    def replayed(self) -> ShareStateShard:
        """What the log says."""
        shard = self.empty()
        for offset, key, value in self.log:
            change = ShareStateShard.decode(key, value)
            assert change is not None
            shard.at(offset)
            shard.apply(change, 0)
        return shard

    def kinds(self) -> list[type[Any]]:
        """What was written, in order."""
        decoded = [ShareStateShard.decode(key, value) for _, key, value in self.log]
        return [type(change.value) for change in decoded if change is not None]


def batch(first: int, last: int, state: int = 2, count: int = 1) -> StateBatch:
    """One batch, in few words."""
    return StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)


def refused(code: ErrorCode) -> Any:
    """Nothing else is raised."""
    return pytest.raises(KafkaError, match=f"^{code.name}:")


def test_a_state_is_begun_written_and_read() -> None:
    """Batches merge, the start moves and takes what is before it along, -1 leaves it."""
    bench = Bench()
    bench.begin()
    assert bench.read() == ShareState(state_epoch=0, leader_epoch=0, start_offset=-1)
    bench.write(batch(0, 4), batch(5, 9, 0), start_offset=0, complete=5)
    bench.write(batch(5, 6), complete=7)
    assert bench.read().batches == (batch(0, 6), batch(7, 9, 0))
    bench.write(start_offset=8, complete=0)
    state = bench.read()
    assert (state.start_offset, state.batches, state.delivery_complete_count) == (8, (batch(8, 9, 0),), 0)
    assert bench.shard.summary(KEY) == replace(state, batches=())


def test_a_snapshot_is_written_after_so_many_updates() -> None:
    """And has all in it."""
    bench = Bench(updates_per_snapshot=2)
    bench.begin(start_offset=0)
    for offset in range(5):
        bench.write(batch(offset, offset), start_offset=0)
    snapshot, update = ShareSnapshotValue, ShareUpdateValue
    assert bench.kinds() == [snapshot, update, update, snapshot, update, update]
    assert bench.read().batches == (batch(0, 4),)
    assert bench.shard.needed_from() == 3


def test_who_is_behind_is_fenced() -> None:
    """By state epoch and by leader epoch; -1 is never."""
    bench = Bench()
    bench.begin(state_epoch=2)
    assert bench.read(leader_epoch=5).leader_epoch == 0
    assert bench.read(leader_epoch=-1).leader_epoch == 5
    with refused(ErrorCode.FENCED_LEADER_EPOCH):
        bench.read(leader_epoch=4)
    with refused(ErrorCode.FENCED_LEADER_EPOCH):
        bench.write(leader_epoch=4, state_epoch=2)
    with refused(ErrorCode.FENCED_STATE_EPOCH):
        bench.write(leader_epoch=5, state_epoch=1)
    with refused(ErrorCode.FENCED_STATE_EPOCH):
        bench.begin(state_epoch=1)
    bench.write(batch(1, 1), leader_epoch=-1, state_epoch=-1)
    assert bench.read().batches == (batch(1, 1),)


def test_what_is_not_there_or_makes_no_sense_is_refused() -> None:
    """With Kafka's codes; a state that was not initialized is summed up as one that knows nothing."""
    bench = Bench()
    with refused(ErrorCode.INVALID_REQUEST):
        bench.read()
    with refused(ErrorCode.INVALID_REQUEST):
        bench.write()
    unknown = replace(KEY, topic_id=MISSING)
    for partition in (replace(KEY, partition=3), unknown):
        with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            bench.begin(partition)
        with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            bench.shard.summary(partition)
        with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            bench.shard.delete(partition)
    with refused(ErrorCode.INVALID_REQUEST):
        bench.begin(replace(KEY, partition=-1))
    assert bench.shard.summary(KEY) == ShareState(state_epoch=0, leader_epoch=0, start_offset=-1)
    bench.begin()
    for backwards in (batch(4, 3), batch(-2, 3)):
        with refused(ErrorCode.INVALID_REQUEST):
            bench.write(backwards)
    assert len(bench.log) == 1


def test_what_is_kept_is_bounded() -> None:
    """Batches of a share partition, and all together in bytes."""
    bench = Bench()
    bench.begin()
    with refused(ErrorCode.INVALID_REQUEST):
        bench.write(*[batch(2 * at, 2 * at) for at in range(SHARE_STATE_BATCHES_MAX + 1)])
    change = ShareState(state_epoch=0, start_offset=-1, batches=(batch(0, 0),))
    with refused(ErrorCode.POLICY_VIOLATION):
        bench.shard.write(KEY, change, wall_ms=0, room_bytes=0)
    with refused(ErrorCode.POLICY_VIOLATION):
        bench.shard.initialize(replace(KEY, partition=1), state_epoch=0, start_offset=0, wall_ms=0, has_room=False)
    held = bench.shard.held_bytes
    bench.write(batch(0, 0), batch(5, 5))
    assert bench.shard.held_bytes > held > 0
    bench.carry_out(bench.shard.delete(KEY))
    assert bench.shard.held_bytes == 0


def test_old_snapshots_are_renewed_while_others_move() -> None:
    """So that the log can be cut behind a share partition that nothing happens to; where nothing happens at all, nothing is written."""
    bench = Bench()
    other = replace(KEY, partition=1)
    bench.begin()
    bench.begin(other)
    bench.wall_ms += 500
    bench.carry_out(bench.shard.renewed([KEY], wall_ms=bench.wall_ms, older_ms=501))
    assert bench.shard.needed_from() == 0
    bench.carry_out(bench.shard.renewed([KEY], wall_ms=bench.wall_ms, older_ms=500))
    assert bench.shard.needed_from() == 1
    assert not bench.shard.quiet
    bench.carry_out(bench.shard.renewed([KEY, other], wall_ms=bench.wall_ms, older_ms=500))
    assert bench.shard.needed_from() == 2
    assert bench.shard.quiet
    kept = bench.shard.partitions[KEY]
    assert (kept.snapshot_epoch, kept.created_ms, kept.written_ms) == (1, 1_000, 1_500)


def test_states_of_deleted_topics_are_forgotten() -> None:
    """A bounded part at a time."""
    bench = Bench()
    for number in range(3):
        bench.begin(replace(KEY, partition=number))
    kept = replace(KEY, topic_id=TOPICS[1])
    bench.begin(kept)
    assert bench.shard.gone() == []
    bench.topics.discard(TOPICS[0])
    assert bench.shard.gone() == [TOPICS[0]]
    assert bench.carry_out(bench.shard.forget(TOPICS[:1], 2))
    assert not bench.carry_out(bench.shard.forget(TOPICS[:1], 2))
    assert list(bench.shard.partitions) == [kept]
    assert bench.shard.needed_from() == 3
    bench.carry_out(bench.shard.delete(kept))
    assert bench.shard.needed_from() == bench.next_offset


def test_a_record_of_a_later_version_is_gone_past() -> None:
    """A kind of key that is not known here, and a tombstone for an update, which is never written."""
    assert ShareStateShard.decode(b"\x00\x07", b"") is None
    key, _ = ShareStateShard.encode(
        Change(KEY, ShareUpdateValue(snapshot_epoch=0, leader_epoch=0, start_offset=0, state_batches=[]))
    )
    assert ShareStateShard.decode(key, None) is None


OPERATIONS = st.tuples(
    st.sampled_from(["begin", "read", "write", "delete", "renew", "prune", "forget"]),
    st.sampled_from([0, 1]),
    st.sampled_from([0, 1]),
    st.integers(-1, 3),
    st.integers(-1, 12),
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 6), st.sampled_from([0, 2, 4]), st.integers(1, 3)), max_size=3
    ),
)


@settings(max_examples=300)
@given(st.lists(OPERATIONS, max_size=30), st.integers(0, 3))
def test_the_log_says_what_is_in_force(operations: list[Any], updates_per_snapshot: int) -> None:
    """Whatever is done and wherever the log is cut, who reads it has the same states; cut off is only what nothing needs."""
    bench = Bench(updates_per_snapshot)
    for operation, topic, number, epoch, start, state_batches in operations:
        key = SharePartitionKey(group_id="g", topic_id=TOPICS[topic], partition=number)
        bench.wall_ms += 1
        before = len(bench.log), dict(bench.shard.partitions)
        try:
            if operation == "begin":
                bench.begin(key, epoch, start)
            elif operation == "read":
                bench.read(key, epoch)
            elif operation == "write":
                batches = [batch(first, first + more, state, count) for first, more, state, count in state_batches]
                bench.write(*batches, key=key, state_epoch=-1, leader_epoch=epoch, start_offset=start, complete=start)
            elif operation == "delete":
                bench.carry_out(bench.shard.delete(key))
            elif operation == "renew":
                keys = list(bench.shard.partitions)
                bench.carry_out(bench.shard.renewed(keys, wall_ms=bench.wall_ms, older_ms=2))
            elif operation == "forget":
                bench.carry_out(bench.shard.forget([key.topic_id], 10))
            else:
                needed_from = bench.shard.needed_from()
                bench.log = [entry for entry in bench.log if entry[0] >= needed_from]
        except KafkaError:
            assert before == (len(bench.log), dict(bench.shard.partitions))
        replayed = bench.replayed()
        assert plain(replayed.partitions) == plain(bench.shard.partitions)
        assert replayed.held_bytes == bench.shard.held_bytes
        assert replayed.needed_from() == bench.shard.needed_from() or not bench.log


def plain(partitions: dict[SharePartitionKey, Kept]) -> dict[SharePartitionKey, Kept]:
    """Without the fences: those of a state that was begun again are forgotten with what is cut, and count from the next leader on."""
    return {key: replace(kept, leader_fence=0, state_fence=0) for key, kept in partitions.items()}
