"""What one shard of `__consumer_offsets` keeps and forgets."""

import contextlib
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from busway_bus.groups.classic_values import GroupLimits
from busway_bus.groups.offsets import CommittedOffset
from busway_bus.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    key_bytes,
    parse,
    value_bytes,
)
from busway_bus.groups.shard import GroupShard, TopicExists
from busway_protocol.assignors.consumer_protocol import encode_subscription
from busway_protocol.assignors.subscription import Subscription
from busway_protocol.errors import MalformedMessage

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
    found = parse(key_bytes(key), value_bytes(value))
    assert found is not None
    shard.apply(found, at)


def emptied(shard: GroupShard, group: str, at: int) -> None:
    value = GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol=None, leader=None, current_state_timestamp=at
    )
    shard.apply((GroupMetadataKey(group=group), value), at)


def test_a_committed_offset_keeps_every_field() -> None:
    """The id of the topic too, which Kafka 4.3 writes since version 4 of the value."""
    under = shard()
    committed(under, "g", 10)
    found = under.offsets["g"]["t", 0]
    assert (found.offset, found.leader_epoch, found.metadata, found.commit_timestamp_ms) == (5, 2, "m", 10)
    assert found.topic_id == TOPIC_ID


def expired(shard: GroupShard, now: int, retention_ms: int, topic_exists: TopicExists) -> list[Any]:
    """What a check of all groups removes."""
    return [
        change for part in shard.expirable() for change in shard.expire(part, now, retention_ms, topic_exists).records
    ]


def tombstones(changes: list[Any]) -> list[tuple[str, str]]:
    assert all(value is None for _, value in changes)
    return [(type(key).__name__, key.group) for key, _ in changes]


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
    """In a stable consumer group those of topics nobody reads, some time after the commit; the others stay for good."""
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
    under.groups["g"].roster.hand_out("a-1", 10_000)
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
