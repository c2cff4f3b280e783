"""What one shard of `__consumer_offsets` keeps and forgets."""

import contextlib
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from busway_bus.groups.group import Committer
from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.memory_quota import pending_share
from busway_bus.groups.offsets import CommittedOffset, NewOffset, TopicPartition
from busway_bus.groups.pending_offsets import pending_bytes
from busway_bus.groups.record_serde import key_bytes, parse, value_bytes
from busway_bus.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from busway_bus.groups.requests import Join
from busway_bus.groups.shard import GroupShard, TopicExists
from busway_bus.kernel.limits import GROUPS_PER_EXPIRY_MAX, OFFSETS_PER_EXPIRY_MAX
from busway_protocol.assignors.consumer_protocol import encode_subscription
from busway_protocol.assignors.subscription import Subscription
from busway_protocol.errors import ErrorCode, KafkaError, MalformedMessage

TOPIC_ID = UUID(int=7)
HOUR = 3_600_000


def shard() -> GroupShard:
    return GroupShard(limits=GroupLimits(), new_member_id=lambda prefix: f"{prefix}-1")


def committed(
    shard: GroupShard, group: str, at: int, *, topic: str = "t", partition: int = 0, expires: int = -1
) -> None:
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    value = CommittedOffset(
        offset=5,
        leader_epoch=2,
        metadata="m",
        commit_timestamp_ms=at,
        topic_id=TOPIC_ID,
        expire_timestamp_ms=expires,
    ).record()
    parsed = parse(key_bytes(key), value_bytes(key, value))
    assert parsed is not None
    shard.apply(parsed, at)


def emptied(shard: GroupShard, group: str, at: int) -> None:
    value = GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol=None, leader=None, current_state_timestamp=at
    )
    shard.apply((GroupMetadataKey(group=group), value), at)


def test_a_committed_offset_keeps_every_field() -> None:
    """The id of the topic too, which Kafka 4.3 writes since version 4 of the value."""
    under = shard()
    committed(under, "g", 10)
    committed_offset = under.offsets["g"]["t", 0]
    assert (
        committed_offset.offset,
        committed_offset.leader_epoch,
        committed_offset.metadata,
        committed_offset.commit_timestamp_ms,
    ) == (5, 2, "m", 10)
    assert committed_offset.topic_id == TOPIC_ID


def expired(shard: GroupShard, now: int, retention_ms: int, topic_exists: TopicExists) -> list[Any]:
    """What a check of all groups removes."""
    return [
        change for part in shard.expirable() for change in shard.expire(part, now, retention_ms, topic_exists).records
    ]


def tombstones(changes: list[Any]) -> list[tuple[str, str]]:
    assert all(value is None for _, value in changes)
    return [(type(key).__name__, key.group) for key, _ in changes]


@pytest.mark.parametrize(
    ("protocol_type", "session_timeout_ms", "expected"),
    [
        ("consumer", 10_000, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 10_000, ErrorCode.UNKNOWN_MEMBER_ID),
        ("consumer", 1, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_nobody_is_a_member_of_a_group_that_is_not_there(
    protocol_type: str, session_timeout_ms: int, expected: ErrorCode
) -> None:
    """That is answered before its protocols are looked at, and after its session time-out."""
    groups = shard()
    request = Join(
        member_id="m",
        instance_id=None,
        client_id="c",
        client_host="h",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=10_000,
        protocol_type=protocol_type,
        protocols=(),
        needs_known_id=True,
        can_skip_assignment=True,
    )
    assert not groups.create("g", request, 0).records
    reply = groups.join("g", request, cast("Any", None), 0).reply
    assert reply is not None
    assert reply.error is expected


def test_the_last_offset_to_expire_takes_its_group_along() -> None:
    """An empty group whose offsets are all over gets its own tombstone, after theirs."""
    under = shard()
    emptied(under, "g", 0)
    committed(under, "g", 0)
    committed(under, "g", 0, partition=1)
    assert expired(under, HOUR - 1, HOUR, lambda *topic: True) == []
    changes = expired(under, HOUR, HOUR, lambda *topic: True)
    assert tombstones(changes) == [("OffsetCommitKey", "g"), ("OffsetCommitKey", "g"), ("GroupMetadataKey", "g")]
    for change in changes:
        under.apply(change, HOUR)
    assert "g" not in under.groups


def test_a_group_with_an_offset_left_stays() -> None:
    """One offset committed later keeps the group."""
    under = shard()
    committed(under, "g", 0)
    committed(under, "g", HOUR // 2, partition=1)
    assert tombstones(expired(under, HOUR, HOUR, lambda *topic: True)) == [("OffsetCommitKey", "g")]


def test_an_empty_group_without_offsets_goes() -> None:
    """Nothing is left that it could be good for: Kafka removes it at the next check, whatever its age."""
    under = shard()
    emptied(under, "g", 0)
    assert tombstones(expired(under, 1, HOUR, lambda *topic: True)) == [("GroupMetadataKey", "g")]


def test_offsets_of_a_topic_that_is_gone_go_with_it() -> None:
    """And the group with them, when it is empty."""
    under = shard()
    committed(under, "g", 0)
    assert tombstones(expired(under, 1, HOUR, lambda *topic: False)) == [
        ("OffsetCommitKey", "g"),
        ("GroupMetadataKey", "g"),
    ]


def test_offsets_that_members_do_not_need_expire() -> None:
    """In a stable consumer group those of topics without a reader, some time after the commit; the others stay for good."""
    under = shard()
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="a",
        current_state_timestamp=0,
        members=[
            MemberMetadata(
                member_id="a",
                client_id="a",
                client_host="/127.0.0.1",
                session_timeout=10_000,
                subscription=encode_subscription(Subscription(topics=("t",))),
                assignment=b"",
            )
        ],
    )
    under.apply((GroupMetadataKey(group="g"), value), 0)
    committed(under, "g", 0, topic="t")
    committed(under, "g", 0, topic="u")
    changes = expired(under, 10 * HOUR, HOUR, lambda *topic: True)
    assert [key.topic for key, _ in changes if isinstance(key, OffsetCommitKey)] == ["u"]
    assert len(changes) == 1


def test_an_offset_set_in_an_empty_group_lives_as_long_as_any() -> None:
    """The later of the two counts: when the last member left, and when the offset was committed."""
    under = shard()
    emptied(under, "g", 0)
    committed(under, "g", 2 * HOUR)
    assert expired(under, 3 * HOUR - 1, HOUR, lambda *topic: True) == []
    assert len(expired(under, 3 * HOUR, HOUR, lambda *topic: True)) == 2


def test_a_group_that_waits_for_a_member_stays() -> None:
    """An id was handed out and its owner is about to come back."""
    under = shard()
    emptied(under, "g", 0)
    under.groups["g"].roster.hand_out("a-1", 10_000, "h")
    assert expired(under, 1, HOUR, lambda *topic: True) == []


@pytest.mark.parametrize("first", ["group", "offset"])
def test_the_order_of_records_in_the_log_does_not_matter(first: str) -> None:
    """After compaction an offset may come before its group's record; the generation is read all the same."""
    value = GroupMetadataValue(protocol_type="consumer", generation=3, protocol=None, leader=None)
    record = (GroupMetadataKey(group="g"), value)
    offset = (
        OffsetCommitKey(group="g", topic="t", partition=0),
        OffsetCommitValue(offset=5, metadata="", commit_timestamp=1),
    )
    under = shard()
    for change in (record, offset) if first == "group" else (offset, record):
        under.apply(change, 1)
    assert under.groups["g"].generation == 3
    assert under.offsets["g"]["t", 0].offset == 5


def test_a_group_deleted_and_made_again_begins_anew() -> None:
    """A tombstone in the log ends what came before it."""
    under = shard()
    value = GroupMetadataValue(protocol_type="consumer", generation=3, protocol=None, leader=None)
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    later = OffsetCommitValue(offset=9, metadata="", commit_timestamp=1)
    for change in ((GroupMetadataKey(group="g"), value), (GroupMetadataKey(group="g"), None), (key, later)):
        under.apply(change, 1)
    assert (under.groups["g"].generation, under.groups["g"].protocol_type) == (0, None)


KINDS = st.integers(0, 5).map(lambda number: number.to_bytes(2, "big"))
REST = st.binary(max_size=60)


@given(st.tuples(KINDS, REST).map(b"".join) | REST, st.none() | st.tuples(KINDS, REST).map(b"".join) | REST)
@example(key_bytes(GroupMetadataKey(group="g")), b"")
@example(key_bytes(GroupMetadataKey(group="g")), b"\x7f\xff")
@example(key_bytes(OffsetCommitKey(group="g", topic="t", partition=0)), b"\x00")
def test_arbitrary_bytes_are_refused_or_read(key: bytes, value: bytes | None) -> None:
    """A record of another kind is none of ours; one that is damaged is a MalformedMessage and nothing else."""
    with contextlib.suppress(MalformedMessage):
        parse(key, value)


@pytest.mark.parametrize("expires", [10, 5 * HOUR])
def test_an_offset_with_a_time_of_its_own_goes_by_that(expires: int) -> None:
    """Sooner or later than the broker's settings say; it is read back from what is stored."""
    under = shard()
    committed(under, "g", 0, expires=expires)
    assert expired(under, expires - 1, HOUR, lambda *topic: True) == []
    assert ("OffsetCommitKey", "g") in tombstones(expired(under, expires, HOUR, lambda *topic: True))


def commit_in(
    under: GroupShard,
    producer_id: int,
    *,
    group: str = "g",
    offset: int = 9,
    topic: str = "t",
    member: tuple[str, str | None, int] = ("", None, -1),
    metadata: str = "",
    host: str = "",
) -> dict[TopicPartition, ErrorCode]:
    """Commit within a transaction, as the runtime does."""
    new = NewOffset(offset=offset, leader_epoch=1, metadata=metadata, topic_id=TOPIC_ID, retention_ms=-1)
    committer = Committer(
        member_id=member[0], instance_id=member[1], epoch=member[2], version=3, transactional=True, host=host
    )
    decision = under.commit(group, committer, {(topic, 0): new}, now=20, wall_ms=20)
    for change in decision.records:
        under.apply_pending(change, producer_id, 20, host)
    return decision.reply


def test_an_offset_of_a_transaction_is_in_force_when_that_is_committed() -> None:
    """And not before; one that is aborted never is, and the group is there from the first."""
    under = shard()
    committed(under, "g", 10)
    assert commit_in(under, 1) == {("t", 0): ErrorCode.NONE}
    commit_in(under, 2, group="h")
    assert under.offsets["g"]["t", 0].offset == 5
    assert (under.pending.of("g"), under.pending.of("h")) == ((("t", 0),), (("t", 0),))
    assert "h" in under.groups
    under.end_transaction(1, 30, committed=True)
    under.end_transaction(2, 30, committed=False)
    offset = under.offsets["g"]["t", 0]
    assert (offset.offset, offset.commit_timestamp_ms, offset.topic_id) == (9, 20, TOPIC_ID)
    assert "h" not in under.offsets
    assert not under.pending.holds("g")
    assert not under.pending.holds("h")
    under.end_transaction(1, 40, committed=False)
    assert under.offsets["g"]["t", 0].offset == 9, "a marker that comes again changes nothing"


def test_a_later_commit_wins_whenever_the_transaction_ends() -> None:
    """By its place in the log, as in Kafka; until then the offset is not stable all the same."""
    under = shard()
    commit_in(under, 1, offset=7)
    committed(under, "g", 30)
    assert under.pending.holds("g", ("t", 0))
    under.end_transaction(1, 40, committed=True)
    assert under.offsets["g"]["t", 0].offset == 5
    commit_in(under, 1, offset=7)
    commit_in(under, 2, offset=8)
    under.end_transaction(2, 40, committed=True)
    under.end_transaction(1, 40, committed=True)
    assert under.offsets["g"]["t", 0].offset == 8


def test_who_may_commit_within_a_transaction() -> None:
    """A member of this generation under its own name; anyone while the group is empty, and producers that cannot say who they are."""
    under = shard()
    with pytest.raises(KafkaError) as refusal:
        commit_in(under, 1, member=("a", None, 3))
    assert refusal.value.code is ErrorCode.ILLEGAL_GENERATION, "there is no such group"
    member = MemberMetadata(
        member_id="a",
        group_instance_id="seat",
        client_id="a",
        client_host="/127.0.0.1",
        session_timeout=10_000,
        subscription=encode_subscription(Subscription(topics=("t",))),
        assignment=b"",
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=3, protocol="range", leader="a", members=[member])
    under.apply((GroupMetadataKey(group="g"), value), 0)
    refused = {
        ("a", None, 2): ErrorCode.ILLEGAL_GENERATION,
        ("a", None, 4): ErrorCode.ILLEGAL_GENERATION,
        ("b", None, 3): ErrorCode.UNKNOWN_MEMBER_ID,
        ("b", "seat", 3): ErrorCode.FENCED_INSTANCE_ID,
        ("b", None, -1): ErrorCode.UNKNOWN_MEMBER_ID,
        ("", "seat", -1): ErrorCode.FENCED_INSTANCE_ID,
    }
    for identity, code in refused.items():
        with pytest.raises(KafkaError) as refusal:
            commit_in(under, 1, member=identity)
        assert refusal.value.code is code, identity
    assert not under.pending.holds("g")
    for identity in (("a", None, 3), ("a", "seat", 3), ("", None, -1)):
        assert commit_in(under, 1, member=identity) == {("t", 0): ErrorCode.NONE}


def test_metadata_of_a_transaction_has_its_bound_too() -> None:
    """One that is too long is refused and leaves nothing pending."""
    under = shard()
    assert commit_in(under, 1, metadata="m" * 4097) == {("t", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert not under.pending.holds("g")


def test_deleting_takes_along_what_is_pending() -> None:
    """An offset, or a group: what the transaction has committed is not in force afterwards."""
    under = shard()
    commit_in(under, 1)
    commit_in(under, 1, topic="u")
    decision = under.delete_offsets("g", [("t", 0), ("v", 0)])
    assert [key.topic for key, _ in decision.records if isinstance(key, OffsetCommitKey)] == ["t"]
    for change in decision.records:
        under.apply(change, 30)
    assert under.pending.of("g") == (("u", 0),)
    deleted = under.delete_group("g")
    assert tombstones([*deleted.records]) == [("OffsetCommitKey", "g"), ("GroupMetadataKey", "g")]
    for change in deleted.records:
        under.apply(change, 30)
    under.end_transaction(1, 40, committed=True)
    assert (under.offsets, under.groups) == ({}, {})


def test_what_a_transaction_may_change_does_not_expire() -> None:
    """Nor does its group, until the transaction is over."""
    under = shard()
    committed(under, "g", 0)
    commit_in(under, 1)
    commit_in(under, 1, group="h")
    for topic_exists in (True, False):
        assert expired(under, 10 * HOUR, HOUR, lambda *topic, there=topic_exists: there) == []
    under.end_transaction(1, 40, committed=False)
    assert sorted(tombstones(expired(under, 10 * HOUR, HOUR, lambda *topic: True))) == [
        ("GroupMetadataKey", "g"),
        ("GroupMetadataKey", "h"),
        ("OffsetCommitKey", "g"),
    ]


def test_open_transactions_have_so_much_room_and_give_it_back() -> None:
    """All shards share it: at its end commits are refused until others are over, or their shard is let go."""
    limits = GroupLimits(pending=pending_share(3 * pending_bytes(("t", 0), "")))
    first, second = (GroupShard(limits=limits, new_member_id=str) for _ in range(2))
    commit_in(first, 1)
    commit_in(first, 1, offset=10)
    commit_in(first, 2, group="h")
    commit_in(second, 3)
    with pytest.raises(KafkaError) as refusal:
        commit_in(second, 4)
    assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    first.end_transaction(1, 30, committed=True)
    commit_in(second, 4)
    with pytest.raises(KafkaError):
        commit_in(second, 5, group="h")
    del first
    commit_in(second, 5, group="h")


def test_a_host_whose_transactions_stay_open_leaves_room_to_others() -> None:
    """It has at most what it leaves free, in all its transactions together; their ends give back what was its own."""
    share = pending_share(8 * pending_bytes(("t", 0), ""))
    under = GroupShard(limits=GroupLimits(pending=share), new_member_id=str)
    for producer_id in range(4):
        commit_in(under, producer_id, group=f"g{producer_id}", host="greedy")
    with pytest.raises(KafkaError, match=r"host greedy .* for offsets within open transactions") as refusal:
        commit_in(under, 4, group="g4", host="greedy")
    assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    commit_in(under, 5, group="g0", host="modest")
    assert (share.of("greedy"), share.of("modest")) == (4 * pending_bytes(("t", 0), ""), pending_bytes(("t", 0), ""))
    for producer_id in range(4):
        under.end_transaction(producer_id, 30, committed=producer_id % 2 == 0)
    assert (share.of("greedy"), share.of("modest"), share.used) == (0, pending_bytes(("t", 0), ""), share.of("modest"))
    under.apply((OffsetCommitKey(group="g0", topic="t", partition=0), None), 40)
    assert share.used == 0
    under.end_transaction(5, 50, committed=True)
    assert share.used == 0


def test_a_check_looks_at_a_bounded_number_of_offsets_at_a_time() -> None:
    """However many one group has, and however many groups there are; each is looked at once, and the last of a group takes it along."""
    under = shard()
    for partition in range(2 * OFFSETS_PER_EXPIRY_MAX + 10):
        committed(under, "large", 0, partition=partition)
    for number in range(GROUPS_PER_EXPIRY_MAX + 10):
        committed(under, f"g{number}", 0)
    removed: list[Any] = []
    for part in under.expirable():
        assert len(part) <= GROUPS_PER_EXPIRY_MAX
        assert 0 < sum(len(places) for places in part.values()) <= OFFSETS_PER_EXPIRY_MAX
        changes = under.expire(part, HOUR, HOUR, lambda *topic: True).records
        for change in changes:
            under.apply(change, HOUR)
        removed += changes
    assert (under.offsets, under.groups) == ({}, {})
    assert len(removed) == 2 * OFFSETS_PER_EXPIRY_MAX + 10 + 2 * (GROUPS_PER_EXPIRY_MAX + 10) + 1
