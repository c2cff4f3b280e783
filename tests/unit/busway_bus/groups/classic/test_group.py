"""The rules of a classic group, one by one; whole lives beside Kafka are in the integration tests."""

from collections.abc import Callable
from typing import Any

import pytest

from busway_bus.groups.classic.members import Roster
from busway_bus.groups.classic.states import TRANSITIONS, Event, State
from busway_bus.groups.group import Committer
from busway_bus.kernel.transitions import IllegalTransition
from busway_protocol.assignors.consumer_protocol import encode_subscription
from busway_protocol.assignors.subscription import Subscription
from busway_protocol.errors import ErrorCode

RANGE = ("range", encode_subscription(Subscription(topics=("t",))))
OTHER = ("sticky", encode_subscription(Subscription(topics=("u",))))


def test_every_state_can_be_entered_from_somewhere() -> None:
    """The table names each state and each event, and the state that ends a group leads nowhere."""
    assert set(TRANSITIONS.values()) == set(State)
    assert {event for _, event in TRANSITIONS} == set(Event)
    assert all(state is not State.DEAD for state, _ in TRANSITIONS)


def test_what_is_not_in_the_table_is_a_mistake() -> None:
    """It is said which event came in which state."""
    with pytest.raises(IllegalTransition, match="JOINED came to a group in the state STABLE"):
        TRANSITIONS.after(State.STABLE, Event.JOINED)


def test_the_first_members_are_gathered(bench_of: Callable[..., Any]) -> None:
    """The first rebalance waits for its delay, longer as members come, never beyond the rebalance timeout."""
    bench = bench_of(initial_rebalance_delay_ms=3_000)
    begun = bench.now
    for number in range(8):
        bench.join(f"m{number}", rebalance_timeout_ms=10_000)
        bench.tick_to(begun + (number + 1) * 2_000)
    answered = [waiter for waiter, answer in bench.answers.items() if answer.error is ErrorCode.NONE]
    assert answered[:4] == ["m0", "m1", "m2", "m3"]
    assert bench.answers["m0"].generation == 1
    assert bench.now - begun == 16_000


def test_the_gathering_does_not_wait_for_those_that_only_have_an_id(bench_of: Callable[..., Any]) -> None:
    """A client that asked for an id and died would hold up everyone for a session."""
    bench = bench_of(initial_rebalance_delay_ms=3_000)
    assert bench.join("ghost", needs_known_id=True).error is ErrorCode.MEMBER_ID_REQUIRED
    bench.join("a")
    bench.tick_to(bench.now + 3_000)
    assert bench.answers["a"].error is ErrorCode.NONE


def test_an_id_lapses_after_a_session(bench: Any) -> None:
    """Who comes back too late is unknown."""
    member_id = bench.join("a", needs_known_id=True).member_id
    bench.tick_to(bench.now + 11_000)
    assert bench.group.roster.pending == {}
    assert bench.join("a2", member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_id_holds_up_a_later_rebalance_until_it_lapses(bench: Any) -> None:
    """A member with an id from a running group is expected, for one session at most."""
    leader = bench.join("a").member_id
    bench.sync("as", leader, [(leader, b"x")])
    bench.join("ghost", needs_known_id=True)
    assert bench.join("a2", leader) is None
    bench.tick_to(bench.now + 10_000)
    assert bench.answers["a2"].generation == 2


def test_members_that_do_not_come_back_are_out_at_the_deadline(bench: Any) -> None:
    """The rest goes on without them, and the lead passes to one that came."""
    leader, follower = bench.pair()
    bench.sync("as", leader, [(leader, b"1"), (follower, b"2")])
    bench.sync("bs", follower)
    assert bench.join("b2", follower, protocols=(RANGE, OTHER)) is None
    bench.tick_to(bench.now + 60_000, alive=(leader,))
    answer = bench.answers["b2"]
    assert (answer.error, answer.leader, answer.generation) == (ErrorCode.NONE, follower, 3)
    assert set(bench.group.members) == {follower}


def test_silent_static_members_keep_their_place(bench: Any) -> None:
    """A rebalance ends without them; only the end of their session, or of the wait for their sync, takes it."""
    lead = bench.join("a").member_id
    bench.join("b", instance_id="seat")
    bench.join("a2", lead)
    seat = bench.answers["b"].member_id
    bench.sync("as", lead, [(lead, b"1"), (seat, b"2")])
    bench.sync("bs", seat, instance_id="seat")
    bench.join("a3", lead, session_timeout_ms=60_000, rebalance_timeout_ms=5_000)
    bench.group.members[seat].session_timeout_ms = 100_000
    bench.group.roster.touch(bench.group.members[seat], bench.now)
    bench.tick_to(bench.now + 60_000, alive=(lead,))
    assert bench.answers["a3"].generation == 3
    assert {member_id for member_id, _, _ in bench.answers["a3"].members} == {lead, seat}


def test_a_rebalance_timeout_of_0_does_not_spin(bench: Any) -> None:
    """With only silent static members left the next try is in the future, and they are there for it."""
    members = []
    for seat in ("one", "two"):
        bench.join(seat, instance_id=seat, rebalance_timeout_ms=0)
        for other in members:
            bench.join(f"{other} again", other, instance_id="one", rebalance_timeout_ms=0)
        members.append(bench.answers[seat].member_id)
    for member_id, seat in zip(members, ("one", "two"), strict=True):
        assert bench.sync(f"{seat} syncs", member_id, instance_id=seat).error is ErrorCode.NONE
    bench.join("c", rebalance_timeout_ms=0)
    bench.leave(next(member_id for member_id in bench.group.members if member_id not in members))
    assert bench.group.next_deadline() == bench.now
    bench.tick()
    assert bench.group.state is State.PREPARING
    assert bench.group.next_deadline() == bench.now + 1_000


def test_the_seat_of_a_static_member_passes_on(bench: Any) -> None:
    """What the old one waits for is answered with FENCED_INSTANCE_ID; the leader does not have to assign again."""
    first = bench.join("a", instance_id="seat").member_id
    bench.sync("as", first, [(first, b"mine")], instance_id="seat")
    bench.written = None
    answer = bench.join("b", instance_id="seat")
    assert answer.skip_assignment
    assert answer.leader == answer.member_id != first
    assert [member.member_id for member in bench.written.members] == [answer.member_id], "the new id is written down"
    assert bench.sync("bs", answer.member_id, instance_id="seat").assignment == b"mine"
    assert bench.sync("as2", first, instance_id="seat").error is ErrorCode.FENCED_INSTANCE_ID
    old = bench.join("c", instance_id="seat", can_skip_assignment=False)
    assert (old.leader, old.members) == (answer.member_id, ())


def test_a_parked_request_of_a_fenced_member_is_answered(bench: Any) -> None:
    """The join of the seat's old owner ends when another takes the seat."""
    lead = bench.join("a").member_id
    bench.sync("as", lead, [(lead, b"1")])
    assert bench.join("b", instance_id="seat") is None
    assert bench.join("c", instance_id="seat") is None
    assert bench.answers["b"].error is ErrorCode.FENCED_INSTANCE_ID
    bench.join("a2", lead)
    assert bench.answers["c"].error is ErrorCode.NONE


def test_a_request_sent_twice_leaves_nobody_waiting(bench: Any) -> None:
    """Of two joins and two syncs of one member, the first has to try again."""
    lead = bench.join("a").member_id
    bench.sync("as", lead, [(lead, b"1")])
    bench.join("b")
    follower = next(member_id for member_id in bench.group.members if member_id != lead)
    bench.join("b2", follower)
    assert bench.answers["b"].error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.join("a2", lead)
    assert bench.answers["b2"].error is ErrorCode.NONE
    bench.sync("bs", follower)
    bench.sync("bs2", follower)
    assert bench.answers["bs"].error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.sync("as2", lead, [(follower, b"2")])
    assert bench.answers["bs2"].assignment == b"2"


def test_the_protocol_is_the_one_most_members_prefer(bench: Any) -> None:
    """Among those that all of them speak."""
    first = bench.join("a", protocols=(RANGE, OTHER)).member_id
    for waiter in "bc":
        bench.join(waiter, protocols=(OTHER, RANGE))
    bench.join("a2", first, protocols=(RANGE, OTHER))
    assert bench.group.protocol == "sticky"
    assert bench.group.subscribed == {"u"}
    assert bench.group.reads("u")
    assert not bench.group.reads("t")


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "reads"),
    [("consumer", b"?", True), ("connect", b"?", False), ("consumer", RANGE[1], False)],
)
def test_what_a_group_reads_when_it_does_not_say(bench: Any, protocol_type: str, metadata: bytes, reads: bool) -> None:
    """A consumer group whose subscriptions cannot be read may read anything; a group of another kind reads nothing."""
    bench.join("a", protocol_type=protocol_type, protocols=(("range", metadata),))
    assert bench.group.reads("elsewhere") is reads


def test_a_commit_shows_that_the_member_is_alive(bench: Any) -> None:
    """Its session begins again, as with a heartbeat."""
    member_id = bench.join("a").member_id
    bench.sync("as", member_id, [(member_id, b"x")])
    for _ in range(4):
        bench.tick_to(bench.now + 9_000)
        bench.group.check_commit(Committer(member_id=member_id, instance_id=None, epoch=1, version=8), bench.now)
    bench.tick_to(bench.now + 10_000)
    assert bench.group.state is State.EMPTY


def test_no_more_members_than_allowed(bench_of: Callable[..., Any]) -> None:
    """Also not through ids that were handed out before the group was full."""
    bench = bench_of(max_size=2)
    late = bench.join("late", needs_known_id=True).member_id
    bench.join("a")
    first = bench.answers["a"].member_id
    bench.join("b")
    bench.group.roster.pending.clear()
    bench.join("a2", first)
    assert len(bench.group.members) == 2
    bench.group.roster.pending[late] = bench.now + 10_000
    assert bench.join("late2", late).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert late not in bench.group.roster.pending
    assert bench.join("c").error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_join_and_a_timer_look_at_no_other_member(
    bench_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a group gathers; where each of five hundred members looks at all others they are a quarter of a million looks."""
    bench = bench_of(initial_rebalance_delay_ms=3_000)
    with monkeypatch.context() as patch:

        def refuse(*_: Any) -> Any:
            raise AssertionError("the group's members were gone through")

        bench.join("first")
        patch.setattr(Roster, "__iter__", refuse)
        for number in range(3):
            bench.join(f"m{number}")
            bench.tick()
    bench.tick_to(bench.now + 3_000)
    assert {answer.error for answer in bench.answers.values()} == {ErrorCode.NONE}
