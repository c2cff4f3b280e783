"""Every refusal of a join, in Kafka's order."""

from dataclasses import replace

import pytest

from busway_bus.groups.classic.join_checks import refusal
from busway_bus.groups.classic.member import Member
from busway_bus.groups.classic.members import Roster
from busway_bus.groups.classic.states import State
from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.groups.requests import Join
from busway_bus.kernel.limits import PENDING_GROUP_MEMBERS_MAX
from busway_protocol.errors import ErrorCode

HOST = "/127.0.0.1"
JOIN = Join(
    member_id="",
    instance_id=None,
    client_id="client",
    client_host=HOST,
    session_timeout_ms=10_000,
    rebalance_timeout_ms=60_000,
    protocol_type="consumer",
    protocols=(("range", b"metadata"),),
    needs_known_id=True,
    can_skip_assignment=True,
)


def roster_of(*joins: tuple[str, Join], memory: GroupMemory | None = None) -> Roster:
    """Make a roster of members that have joined once."""
    roster = Roster(memory or GroupMemory())
    for member_id, request in joins:
        roster.add(Member.joining(member_id, request, now=0))
    return roster


def refused(
    request: Join, roster: Roster | None = None, state: State = State.STABLE, limits: GroupLimits | None = None
) -> ErrorCode | None:
    """Ask for the refusal in a group of consumers."""
    limits = limits or GroupLimits()
    roster = roster_of() if roster is None else roster
    return refusal(request, state=state, roster=roster, protocol_type="consumer", limits=limits)


@pytest.mark.parametrize(
    ("session_timeout_ms", "code"),
    [
        (5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        (6_000, None),
        (1_800_000, None),
        (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_session_timeout_is_within_the_brokers_bounds(session_timeout_ms: int, code: ErrorCode | None) -> None:
    """Both bounds are allowed."""
    assert refused(replace(JOIN, session_timeout_ms=session_timeout_ms)) is code


def test_a_deleted_group_sends_the_client_back_to_the_coordinator() -> None:
    """The client retries, and joins the group's successor."""
    assert refused(JOIN, state=State.DEAD) is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    "change",
    [{"protocol_type": ""}, {"protocol_type": "connect"}, {"protocols": (("sticky", b""),)}],
)
def test_a_protocol_that_the_members_do_not_share(change: dict[str, object]) -> None:
    """The protocol type differs or is missing, or no protocol is supported by all."""
    group = roster_of(("a", JOIN))
    assert refused(replace(JOIN, **change), group) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[arg-type]
    assert refused(JOIN, group) is None


def test_the_first_member_chooses_the_protocol_type() -> None:
    """The type that is left from earlier members does not bind an empty group; a protocol is still needed."""
    assert refused(replace(JOIN, protocol_type="connect"), state=State.EMPTY) is None
    assert refused(replace(JOIN, protocols=()), state=State.EMPTY) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_member_ids_are_checked_against_the_members() -> None:
    """A handed-out id is known; a static member's predecessor is fenced."""
    group = roster_of(("a", JOIN), ("s-2", replace(JOIN, instance_id="s")))
    group.hand_out("handed-out", 10_000, HOST)
    assert refused(replace(JOIN, member_id="a"), group) is None
    assert refused(replace(JOIN, member_id="handed-out"), group) is None
    assert refused(replace(JOIN, member_id="handed-out", instance_id="s"), group) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(replace(JOIN, member_id="b"), group) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(replace(JOIN, member_id="s-1", instance_id="s"), group) is ErrorCode.FENCED_INSTANCE_ID
    assert refused(replace(JOIN, member_id="s-2", instance_id="s"), group) is None


def test_a_full_group_admits_its_members_only() -> None:
    """The size counts members, and during a rebalance those that have joined it."""
    limits, group = GroupLimits(max_size=1), roster_of(("a", JOIN))
    assert refused(JOIN, group, limits=limits) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused(replace(JOIN, member_id="a"), group, limits=limits) is None
    assert refused(JOIN, group, State.PREPARING, limits) is None
    group.park_join(group.members["a"], "waiter")
    assert refused(JOIN, group, State.PREPARING, limits) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused(replace(JOIN, member_id="a"), group, State.PREPARING, limits) is None


def test_an_empty_group_hands_out_a_bounded_number_of_ids() -> None:
    """A handed-out id may be used when no further one is handed out."""
    group = roster_of()
    for number in range(PENDING_GROUP_MEMBERS_MAX):
        assert refused(JOIN, group, State.EMPTY) is None
        group.hand_out(f"m{number}", 10_000, HOST)
    assert refused(JOIN, group, State.EMPTY) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused(replace(JOIN, member_id="m0"), group, State.EMPTY) is None


def test_memory_is_checked_before_the_member_is_added() -> None:
    """A member's own protocols make room for their replacement."""
    small = replace(JOIN, protocols=(("range", bytes(60_000)),))
    group = roster_of(("a", small), memory=GroupMemory(group_limit=100_000))
    assert refused(small, group) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused(replace(small, member_id="a"), group) is None
