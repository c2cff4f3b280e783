"""Checks of commits against a classic group's generation, and the age of its offsets."""

from dataclasses import replace

import pytest
from tests.unit.busway_bus.groups.classic.test_join_checks import JOIN

from busway_bus.groups.classic.member import Member
from busway_bus.groups.classic.state import ClassicView
from busway_bus.groups.classic.states import State
from busway_bus.groups.group import Committer
from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.groups.offsets import CommittedOffset
from busway_protocol.errors import ErrorCode, KafkaError

MEMBER = Committer(member_id="m-1", instance_id=None, epoch=3, version=9)
OFFSET = CommittedOffset(offset=7, leader_epoch=-1, metadata="", commit_timestamp_ms=1_000)


class Running(ClassicView):
    """A group without the operations that these tests do not use."""


Running.__abstractmethods__ = frozenset()


@pytest.fixture
def group() -> ClassicView:
    """A stable group in generation 3 with one member."""
    made = Running("g", GroupMemory())  # type: ignore[abstract]
    made.state, made.generation, made.protocol_type, made.protocol = State.STABLE, 3, "consumer", "range"
    made.roster.add(Member.joining("m-1", JOIN, now=0))
    made.subscribed = frozenset({"read"})
    return made


def code_of(group: ClassicView, committer: Committer, now: int = 5_000) -> ErrorCode:
    """Return the error of a commit, or NONE."""
    try:
        group.check_commit(committer, now)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_a_commit_extends_the_session(group: ClassicView) -> None:
    """As a heartbeat does; one in a transaction comes from a producer and does not."""
    assert code_of(group, replace(MEMBER, transactional=True)) is ErrorCode.NONE
    assert group.members["m-1"].deadline_ms == 10_000
    assert code_of(group, MEMBER) is ErrorCode.NONE
    assert group.members["m-1"].deadline_ms == 15_000


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"epoch": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "m-2"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "s"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "", "epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_members_of_the_generation_commit(group: ClassicView, change: dict[str, object], code: ErrorCode) -> None:
    """A commit without a member is refused while there are members."""
    assert code_of(group, replace(MEMBER, **change)) is code  # type: ignore[arg-type]


def test_a_commit_before_the_assignment_is_refused(group: ClassicView) -> None:
    """In a transaction it is allowed, as in Kafka."""
    group.state = State.COMPLETING
    assert code_of(group, MEMBER) is ErrorCode.REBALANCE_IN_PROGRESS
    assert code_of(group, replace(MEMBER, transactional=True)) is ErrorCode.NONE


def test_an_empty_group_takes_commits_without_a_member(group: ClassicView) -> None:
    """Also with a member id, if there is no generation; with a generation the member is unknown."""
    group.roster.remove("m-1")
    group.state = State.EMPTY
    for transactional in (False, True):
        alone = replace(MEMBER, epoch=-1, transactional=transactional)
        assert code_of(group, alone) is ErrorCode.NONE
        assert code_of(group, replace(alone, epoch=3)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_producer_that_names_no_member_is_not_checked(group: ClassicView) -> None:
    """TxnOffsetCommit before version 3 has no member."""
    unnamed = Committer(member_id="", instance_id=None, epoch=-1, version=2, transactional=True)
    assert code_of(group, unnamed) is ErrorCode.NONE
    assert code_of(group, replace(unnamed, member_id="m-1")) is ErrorCode.ILLEGAL_GENERATION


def test_offsets_age_once_no_member_reads_their_topic(group: ClassicView) -> None:
    """In a stable group by subscription; during a rebalance none ages."""
    assert group.ages_from("read", OFFSET) is None
    assert group.ages_from("other", OFFSET) == 1_000
    group.state = State.PREPARING
    assert group.ages_from("other", OFFSET) is None


def test_offsets_of_an_empty_group_age_since_the_last_member_left(group: ClassicView) -> None:
    """A later commit starts again; without a protocol type the commit alone counts."""
    group.state, group.state_since_ms = State.EMPTY, 2_000
    assert group.ages_from("read", OFFSET) == 2_000
    assert group.ages_from("read", replace(OFFSET, commit_timestamp_ms=3_000)) == 3_000
    group.protocol_type = None
    assert group.ages_from("read", OFFSET) == 1_000


def test_an_undecodable_subscription_reads_every_topic(group: ClassicView) -> None:
    """Only in groups of consumers: others have no subscriptions."""
    group.subscribed = None
    assert group.reads("any")
    group.protocol_type = "connect"
    assert not group.reads("any")


def test_offsets_are_deleted_below_consumers_or_without_members(group: ClassicView) -> None:
    """Members of another protocol type may use any."""
    group.check_offset_delete()
    group.protocol_type = "connect"
    with pytest.raises(KafkaError) as refused:
        group.check_offset_delete()
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    group.state = State.EMPTY
    group.check_offset_delete()


def test_what_may_be_replaced_never_had_a_member(group: ClassicView) -> None:
    """A group with offsets only, and no handed-out id, may become one of another kind."""
    assert not group.replaceable
    fresh = Running("f", GroupMemory())  # type: ignore[abstract]
    assert fresh.unused
    assert fresh.replaceable
    assert fresh.listed_type == ""
    fresh.roster.hand_out("id", 1_000, "/127.0.0.1")
    assert not fresh.unused
    assert fresh.empty
