"""A consumer group as its records make it, and the checks of its offsets."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from busway_bus.groups.group import Committer
from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.groups.modern.consumer_member import STATIC_LEAVE_EPOCH, ConsumerMember, MemberState
from busway_bus.groups.modern.consumer_state import ConsumerView, target_record
from busway_bus.groups.modern.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from busway_bus.groups.modern.requests import GroupSettings
from busway_bus.groups.offsets import CommittedOffset
from busway_protocol.errors import ErrorCode, KafkaError

TOPIC = UUID(int=1)
SESSION_MS = 45_000
COMMIT = Committer(member_id="m", instance_id=None, epoch=5, version=9)
OFFSET = CommittedOffset(offset=7, leader_epoch=-1, metadata="", commit_timestamp_ms=1_000)
MEMBER = ConsumerMember(
    member_id="m",
    epoch=5,
    previous_epoch=4,
    topics=frozenset({"a"}),
    rebalance_timeout_ms=6_000,
    assigned={TOPIC: {0: 3, 1: 5}},
)


class Running(ConsumerView):
    """A group without the operations that these tests do not use."""


Running.__abstractmethods__ = frozenset()


def write(group: ConsumerView, member: ConsumerMember, now: int = 0) -> None:
    """Apply both records of a member."""
    for key, value in (member.metadata_record("g"), member.assignment_record("g")):
        group.apply(key, value, now)


@pytest.fixture
def group() -> ConsumerView:
    """A group with one member in epoch 5."""
    made = Running("g", GroupMemory(), lambda group_id: GroupSettings())  # type: ignore[abstract]
    write(made, MEMBER)
    return made


def resolve(group: ConsumerView, regex: str, *topics: str) -> None:
    """Apply the resolution of a regular expression; without topics its tombstone."""
    key = ConsumerGroupRegularExpressionKey(group_id="g", regular_expression=regex)
    value = ConsumerGroupRegularExpressionValue(topics=list(topics), version=1, timestamp=0) if topics else None
    group.apply(key, value, 0)


def test_an_assigned_partition_has_its_owner(group: ConsumerView) -> None:
    """Also while it is revoked; a partition that is given up has none."""
    assert group.owners == {TOPIC: {0: "m", 1: "m"}}
    write(group, replace(MEMBER, state=MemberState.UNREVOKED, assigned={TOPIC: {0: 3}}, revoking={TOPIC: {1: 5}}))
    assert group.owners == {TOPIC: {0: "m", 1: "m"}}
    write(group, replace(MEMBER, assigned={TOPIC: {0: 3}}))
    assert group.owners == {TOPIC: {0: "m"}}


def test_a_partition_that_moved_is_not_taken_from_its_new_owner(group: ConsumerView) -> None:
    """Records of two members may be replayed in either order."""
    write(group, replace(MEMBER, member_id="n", assigned={TOPIC: {1: 6}}))
    group.apply(ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"), None, 0)
    assert group.owners == {TOPIC: {1: "n"}}


def test_tombstones_empty_the_group(group: ConsumerView) -> None:
    """They name all that the group has written; nothing is counted afterwards."""
    write(group, replace(MEMBER, member_id="n", regex="b.*", assignor="range", assigned={TOPIC: {2: 1}}))
    resolve(group, "b.*", "b1", "b2")
    group.apply(*target_record("g", "m", {TOPIC: (1, 0)}), 0)
    assert list(group.members) == ["m", "n"]
    assert (dict(group.regexes), dict(group.assignors)) == ({"b.*": 1}, {"range": 1})
    changes = group.tombstones()
    assert {type(key) for key, _ in changes} == {
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupRegularExpressionKey,
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupMetadataKey,
    }
    for key, value in changes:
        assert value is None
        group.apply(key, value, 0)
    assert group.over
    assert (group.members, group.owners, group.resolved) == ({}, {}, {})
    assert (dict(group.regexes), dict(group.assignors), dict(group.by_regex)) == ({}, {}, {})
    assert group.next_deadline() is None


def test_resolved_matches_are_topics_of_the_subscriber(group: ConsumerView) -> None:
    """A topic that two expressions match stays until neither does."""
    subscriber = replace(MEMBER, regex="b.*")
    write(group, subscriber)
    assert group.topics_of(subscriber) == {"a"}
    resolve(group, "b.*", "b1", "b2")
    resolve(group, ".*2", "b2")
    assert group.topics_of(subscriber) == {"a", "b1", "b2"}
    assert group.reads("b1")
    resolve(group, "b.*")
    assert not group.reads("b1")
    assert group.reads("b2")


def test_classic_members_are_counted_by_protocol(group: ConsumerView) -> None:
    """They have their own session timeout."""
    classic = ClassicMemberMetadata(
        session_timeout_ms=10_000, supported_protocols=[ClassicProtocol(name="range", metadata=b"")]
    )
    write(group, replace(MEMBER, member_id="old", classic=classic, assigned={}), now=1_000)
    assert (group.classic_members, dict(group.by_protocol)) == (1, {"range": 1})
    assert group.overdue(11_000) == ["old"]
    write(group, replace(MEMBER, member_id="old", assigned={}), now=2_000)
    assert (group.classic_members, dict(group.by_protocol)) == (0, {})
    assert group.overdue(11_000) == []


def test_a_revocation_has_the_rebalance_timeout(group: ConsumerView) -> None:
    """From the notification on; a repeated record does not extend it, a new one does."""
    revoking = replace(MEMBER, state=MemberState.UNREVOKED, assigned={TOPIC: {0: 3}}, revoking={TOPIC: {1: 5}})
    write(group, revoking, now=1_000)
    assert group.next_deadline() == 7_000
    write(group, revoking, now=5_000)
    assert group.overdue(6_999) == []
    assert group.overdue(7_000) == ["m"]
    write(group, replace(revoking, epoch=6), now=8_000)
    assert group.overdue(13_999) == []
    write(group, replace(MEMBER, epoch=6), now=9_000)
    assert group.next_deadline() == SESSION_MS


def test_a_static_member_that_left_for_a_while_has_its_session_only(group: ConsumerView) -> None:
    """It confirms nothing meanwhile."""
    write(group, replace(MEMBER, state=MemberState.UNREVOKED, revoking={TOPIC: {1: 5}}, epoch=STATIC_LEAVE_EPOCH))
    assert group.next_deadline() == SESSION_MS


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, None),
        ({"epoch": 6}, ErrorCode.STALE_MEMBER_EPOCH),
        ({"epoch": 6, "transactional": True}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "n"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"version": 8}, ErrorCode.UNSUPPORTED_VERSION),
        ({"version": 8, "transactional": True}, None),
        ({"member_id": "", "epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "", "epoch": -1, "transactional": True}, None),
    ],
)
def test_commits(group: ConsumerView, change: dict[str, Any], code: ErrorCode | None) -> None:
    """A producer may name no member; its errors are those of the classic protocol."""
    committer = replace(COMMIT, **change)
    if code is None:
        assert group.check_commit(committer, 0) is None
        return
    with pytest.raises(KafkaError) as refused:
        group.check_commit(committer, 0)
    assert refused.value.code is code


def test_a_commit_in_an_earlier_epoch_is_checked_by_partition(group: ConsumerView) -> None:
    """It is allowed for what the member has owned since."""
    check = group.check_commit(replace(COMMIT, epoch=4), 0)
    assert check is not None
    check("a", TOPIC, 0)
    for partition in (1, 2):
        with pytest.raises(KafkaError, match=f"a-{partition} is not the member's in epoch 4") as refused:
            check("a", TOPIC, partition)
        assert refused.value.code is ErrorCode.STALE_MEMBER_EPOCH


def test_anyone_may_commit_to_an_empty_group() -> None:
    """Tools reset offsets so."""
    empty = Running("g", GroupMemory(), lambda group_id: GroupSettings())  # type: ignore[abstract]
    assert empty.check_commit(replace(COMMIT, member_id="", epoch=-1, version=2), 0) is None


def test_fetches_of_offsets(group: ConsumerView) -> None:
    """A member names its epoch; who names none is not checked."""
    group.check_fetch(None, -1)
    group.check_fetch("m", 5)
    with pytest.raises(KafkaError) as stale:
        group.check_fetch("m", 4)
    assert stale.value.code is ErrorCode.STALE_MEMBER_EPOCH
    with pytest.raises(KafkaError) as unknown:
        group.check_fetch("n", 5)
    assert unknown.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_age_once_no_member_subscribes(group: ConsumerView) -> None:
    """From their commit on."""
    assert group.ages_from("a", OFFSET) is None
    assert group.ages_from("z", OFFSET) == 1_000


def test_a_target_is_written_in_a_fixed_order() -> None:
    """By topic id, so that equal targets are equal bytes."""
    other = UUID(int=0)
    _, value = target_record("g", "m", {TOPIC: (1, 0), other: (2,)})
    assert value is not None
    assert [(topic.topic_id, topic.partitions) for topic in value.topic_partitions] == [(other, [2]), (TOPIC, [1, 0])]
