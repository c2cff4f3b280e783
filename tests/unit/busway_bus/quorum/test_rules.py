"""The rules that stand alone: the table of states, counting, voters, progress, what is known of a log, what is kept back."""

from itertools import product
from uuid import UUID

import pytest
from tests.unit.busway_bus.quorum.bench import ME, SECOND, THIRD, log

from busway_bus.kernel.limits import OBSERVER_SESSION_MS, OBSERVERS_MAX
from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum.elections import may_vote, successor_backoff_ms, would_vote
from busway_bus.quorum.log_view import Behind, Diverging, LogView, OffsetAndEpoch
from busway_bus.quorum.outbox import Outbox
from busway_bus.quorum.progress import Followers
from busway_bus.quorum.ready import LogWrite, Read, Reply, Send
from busway_bus.quorum.states import TRANSITIONS, Election, Event, Role, role_at_start
from busway_bus.quorum.voters import KRaftVersion, RefusedChange, ReplicaKey, VersionRange, Voter, VoterSet
from busway_bus.quorum.votes import Ballot, BallotResult, committed_offset, majority
from busway_bus.quorum.wire import fetch_response, vote_request
from busway_protocol.errors import ErrorCode

# States


def test_nobody_becomes_a_leader_but_a_candidate() -> None:
    """A vote is asked for in an epoch of its own, after answers to a pre-vote (KIP-996)."""
    assert [pair for pair, move in TRANSITIONS.items() if move.role is Role.LEADER] == [(Role.CANDIDATE, Event.ELECTED)]
    assert [pair for pair, move in TRANSITIONS.items() if move.role is Role.CANDIDATE] == [
        (Role.PROSPECTIVE, Event.WOULD_WIN)
    ]


@pytest.mark.parametrize("pair", [pair for pair in product(Role, Event) if pair not in TRANSITIONS])
def test_what_is_not_in_the_table_is_a_mistake_of_ours(pair: tuple[Role, Event]) -> None:
    """It stops the process."""
    with pytest.raises(AssertionError, match="came to a"):
        TRANSITIONS.after(*pair)


def test_a_vote_stays_given_in_its_epoch_and_not_beyond() -> None:
    """Also where a leader is found."""
    voted = Election(epoch=3).voting_for(SECOND)
    assert voted.with_leader(3, 3).voted == SECOND
    assert voted.with_leader(3, 4).voted is None
    assert voted.in_epoch(4) == Election(epoch=4)
    with pytest.raises(AssertionError, match="given already"):
        voted.voting_for(THIRD)


@pytest.mark.parametrize(
    ("election", "role"),
    [
        (Election(), Role.UNATTACHED),
        (Election(epoch=2).voting_for(SECOND), Role.UNATTACHED),
        (Election(epoch=2).voting_for(ME), Role.CANDIDATE),
        (Election(epoch=2).voting_for(ReplicaKey(ME.id, UUID(int=7))), Role.UNATTACHED),
        (Election(epoch=2, leader_id=2), Role.FOLLOWER),
        (Election(epoch=2).voting_for(ME).with_leader(ME.id, 2), Role.RESIGNED),
    ],
)
def test_a_node_begins_as_its_disk_says(election: Election, role: Role) -> None:
    """A former leader does not lead or vote again in that epoch."""
    assert role_at_start(election, ME, votes=True) is role


# Votes


@pytest.mark.parametrize(("voters", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_two_majorities_share_a_voter(voters: int, needed: int) -> None:
    """More than half."""
    assert majority(voters) == needed
    assert 2 * needed > voters


@pytest.mark.parametrize(
    ("ends", "epoch_start", "committed"),
    [
        ((10, 10, 4), 5, 10),
        ((10, 7, 4), 5, 7),
        ((10, 5, 4), 5, None),  # all of it is of an earlier epoch
        ((10, 6, 4), 5, 6),
        ((10, -1, -1), 5, None),
        ((10,), 5, 10),
        ((10, 8), 5, 8),
        ((10, 9, 8, 7, 6), 5, 8),
        ((10, 9, 8, 7), 5, 8),
    ],
)
def test_what_a_majority_has_is_committed_from_the_leaders_own_epoch_on(
    ends: tuple[int, ...], epoch_start: int, committed: int | None
) -> None:
    """KIP-595: counting commits nothing of earlier epochs alone."""
    assert committed_offset(ends, epoch_start) == committed


def test_a_ballot_counts_each_voter_once() -> None:
    """Its first answer, and none of a node that does not vote."""
    ballot = Ballot(voters=(1, 2, 3, 4, 5), granted={1})
    for voter, granted in ((2, False), (2, True), (9, True), (3, True)):
        ballot.record(voter, granted=granted)
    assert (ballot.granted, ballot.rejected, ballot.unanswered) == ({1, 3}, {2}, (4, 5))
    assert ballot.result is BallotResult.OPEN
    ballot.record(4, granted=False)
    ballot.record(5, granted=False)
    assert ballot.result is BallotResult.LOST
    assert ballot.is_lost


@pytest.mark.parametrize("role", Role)
def test_a_pre_vote_is_denied_by_who_has_a_leader(role: Role) -> None:
    """A leader, and a follower that was answered; everybody else looks at the log alone."""
    denies = role in {Role.LEADER, Role.FOLLOWER}
    assert would_vote(role, covers=True, fetched=role is Role.FOLLOWER) is not denies
    assert not would_vote(role, covers=False, fetched=False)
    assert would_vote(Role.FOLLOWER, covers=True, fetched=False)


@pytest.mark.parametrize("role", Role)
def test_a_vote_is_given_by_who_knows_no_leader_and_has_not_voted(role: Role) -> None:
    """And to the same candidate again."""
    fresh, gives = Election(epoch=3), role in {Role.UNATTACHED, Role.PROSPECTIVE}
    assert may_vote(role, fresh, SECOND, covers=True) is gives
    assert not may_vote(role, fresh, SECOND, covers=False)
    assert not may_vote(role, fresh.with_leader(3, 3), SECOND, covers=True)
    assert may_vote(role, fresh.voting_for(SECOND), SECOND, covers=True) is gives
    assert not may_vote(role, fresh.voting_for(SECOND), THIRD, covers=True)
    assert not may_vote(role, fresh.voting_for(SECOND), ReplicaKey(2, UUID(int=9)), covers=True)


def test_successors_wait_by_their_rank() -> None:
    """The first does not, then twice as long each; who is not named waits longest."""
    preferred = [ReplicaKey(node_id) for node_id in (5, 2, 3, 4)]
    assert [successor_backoff_ms(ReplicaKey(node_id), preferred, 800) for node_id in (5, 2, 3, 4, 9)] == [
        0,
        100,
        200,
        400,
        800,
    ]


# Voters


def voter(replica: ReplicaKey, highest: int = 1) -> Voter:
    return Voter(key=replica, supported=VersionRange(0, highest))


def test_voters_change_one_at_a_time() -> None:
    """A set and the next one have majorities that overlap (KIP-853)."""
    two = VoterSet([voter(ME), voter(SECOND)])
    three = two.with_voter(voter(THIRD))
    assert three.ids == (1, 2, 3)
    assert two.overlaps(three)
    assert three.without_voter(THIRD) == two
    assert two.overlaps(VoterSet([voter(ME), voter(THIRD)]))
    assert not VoterSet([voter(ME)]).overlaps(three)
    with pytest.raises(RefusedChange, match="node 2 votes already; remove it first"):
        two.with_voter(voter(ReplicaKey(2, UUID(int=9))))
    with pytest.raises(RefusedChange, match="none of the voters"):
        two.without_voter(ReplicaKey(2, UUID(int=9)))
    with pytest.raises(RefusedChange, match="the last voter"):
        VoterSet([voter(ME)]).without_voter(ME)


def test_a_node_that_lost_its_directory_votes_no_more() -> None:
    """Unless the set knows no directories; then it learns them with the voter's next word."""
    known, fixed = VoterSet([voter(ME), voter(SECOND)]), VoterSet.fixed((1, 2))
    other = ReplicaKey(2, UUID(int=9))
    assert (known.has(SECOND), known.has(other), fixed.has(other), fixed.has(THIRD)) == (True, False, True, False)
    assert fixed.updated(voter(SECOND)).key(2) == SECOND
    with pytest.raises(RefusedChange, match="none of the voters"):
        known.updated(voter(other))


def test_a_version_is_supported_when_all_voters_know_it() -> None:
    """The level of `kraft.version` may be raised then."""
    assert VoterSet([voter(ME), voter(SECOND)]).supports(KRaftVersion.DYNAMIC)
    assert not VoterSet([voter(ME), voter(SECOND, highest=0)]).supports(KRaftVersion.DYNAMIC)


# Progress


def test_caught_up_is_who_has_now_what_was_there_when_it_asked_before() -> None:
    """Otherwise none ever is, in a log that grows (KIP-836)."""
    followers = Followers(VoterSet.fixed((1, 2, 3)), 1)
    followers.fetched(SECOND, 5, 10, 100)
    assert followers.voters[2].caught_up_ms == -1
    followers.fetched(SECOND, 10, 20, 200)
    assert followers.voters[2].caught_up_ms == 100
    followers.fetched(SECOND, 20, 20, 300)
    assert (followers.voters[2].caught_up_ms, followers.voters[2].end_offset) == (300, 20)
    assert followers.silent(400, 200) == (3,)
    assert followers.by_offset() == (2, 3)


def test_observers_are_counted_in_bounds_and_forgotten() -> None:
    """They have no say in what is committed."""
    followers = Followers(VoterSet([voter(ME), voter(SECOND)]), 1)
    assert not followers.fetched(ReplicaKey(2, UUID(int=9)), 5, 10, 0)
    assert tuple(followers.end_offsets()) == (-1,)
    for number in range(OBSERVERS_MAX + 10):
        followers.fetched(ReplicaKey(1_000 + number), 5, 10, 1)
    assert len(followers.observers) == OBSERVERS_MAX
    followers.fetched(ReplicaKey(7), 5, 10, OBSERVER_SESSION_MS + 1)
    assert list(followers.observers) == [ReplicaKey(7)]


# What is known of a log


@pytest.mark.parametrize(
    ("leader_epochs", "theirs", "parted", "cut"),
    [
        ((1, 1, 1), (1, 1, 1), None, 3),
        ((1, 1, 1), (1,), None, 1),
        ((1, 2, 2), (1, 1, 1), Diverging(OffsetAndEpoch(1, 1)), 1),
        ((1, 1, 3), (1, 1, 2, 2), Diverging(OffsetAndEpoch(2, 1)), 2),
        ((1, 2, 3), (1, 2, 2), Diverging(OffsetAndEpoch(2, 2)), 2),
        ((2, 2), (1, 1), Diverging(OffsetAndEpoch(0, 0)), 0),
        ((1, 1), (1, 1, 1), Diverging(OffsetAndEpoch(2, 1)), 2),
    ],
)
def test_logs_part_by_epoch(
    leader_epochs: tuple[int, ...], theirs: tuple[int, ...], parted: Diverging | None, cut: int
) -> None:
    """The leader names the largest epoch that both may have, and the other cuts there (KIP-101, KIP-595)."""
    leader, follower = log(*leader_epochs), log(*theirs)
    assert leader.where_parted(follower.end_offset, follower.last_epoch) == parted
    if parted is not None:
        assert follower.truncation_offset(parted.end) == cut


def test_who_is_behind_the_beginning_is_told_of_the_snapshot() -> None:
    """KIP-630: what is before the log is in no batch any more."""
    view = LogView(start_offset=10, end_offset=10, flushed_offset=10, snapshots={SnapshotId(10, 3): 100})
    assert (view.last_epoch, view.end) == (3, OffsetAndEpoch(10, 3))
    assert view.where_parted(4, 2) == Behind(SnapshotId(10, 3))
    assert view.where_parted(10, 3) is None


@pytest.mark.parametrize(
    ("offset", "epoch", "answer"),
    [
        (0, 0, Behind(SnapshotId(4, 3))),  # an empty log, which a snapshot fills sooner
        (1, 1, Behind(SnapshotId(4, 3))),  # before the log's start
        (2, 1, Behind(SnapshotId(4, 3))),  # at its start, and not with the epoch of the oldest snapshot
        (5, 1, Behind(SnapshotId(4, 3))),  # an epoch before the oldest snapshot's
        (2, 2, None),
        (3, 3, None),
        (5, 3, None),
        (4, 2, Diverging(OffsetAndEpoch(2, 2))),
        (5, 4, Diverging(OffsetAndEpoch(5, 3))),
    ],
)
def test_a_follower_needs_a_snapshot_where_kafka_says_so(
    offset: int, epoch: int, answer: Diverging | Behind | None
) -> None:
    """`ReplicatedLog.validateOffsetAndEpoch`: the newest is named, the oldest decides."""
    view = log(1, 2, 3, 3, 3)
    view.snapshotted({SnapshotId(2, 2): 10, SnapshotId(4, 3): 10}, 2)
    assert view.where_parted(offset, epoch) == answer


def test_a_log_covers_another_by_last_epoch_then_by_length() -> None:
    """What a vote asks for."""
    own_log = log(1, 2, 2)
    assert [
        own_log.is_covered_by(log(*theirs).end) for theirs in ((1, 2, 2), (1, 2), (3,), (1, 1, 1, 1), (2, 2, 2, 2))
    ] == [
        True,
        False,
        True,
        False,
        True,
    ]


def test_a_follower_asks_back_where_its_epochs_are_finer_than_the_leaders() -> None:
    """It cuts where its own last shared epoch ends, and learns more with the next fetch."""
    follower = log(1, 1, 3, 3)
    assert follower.truncation_offset(OffsetAndEpoch(3, 2)) == 2


# What is kept back


def send(number: int, to: int = 0) -> Send:
    return Send(to=to or number, correlation=number, body=vote_request("here", SECOND, ME, 1, LogView(), pre_vote=True))


def test_nothing_is_sent_before_what_it_rests_on_is_on_disk() -> None:
    """And all in its order."""
    outbox = Outbox()
    outbox.save(Election(epoch=1))
    outbox.send(send(1))
    first = outbox.take(0)
    outbox.append(LogWrite(batches=(b"",)))
    outbox.send(send(2))
    second = outbox.take(5)
    outbox.send(send(3))
    assert (first.send, second.send, outbox.take(5).send) == ((), (), ())
    assert (first.number, first.writes, second.number) == (1, True, 2)
    assert outbox.flushed_by(1) is None
    assert [message.correlation for message in outbox.take(5).send if isinstance(message, Send)] == [1]
    assert outbox.flushed_by(2) == 5
    assert [message.correlation for message in outbox.take(5).send if isinstance(message, Send)] == [2, 3]


def test_requests_that_were_given_up_while_the_disk_was_full_are_never_sent() -> None:
    """Of those to one node the newest is left, however long that takes; what others are answered or asked stays."""
    outbox = Outbox()
    outbox.save(Election(epoch=1))
    answer = Reply(waiter="w", body=fetch_response(ErrorCode.NONE, Election(), log_start_offset=0))
    outbox.send(answer)
    outbox.send(send(1, to=3))
    outbox.take(0)
    for number in range(2, 100):
        outbox.send(send(number, to=2))
        outbox.take(0)
    outbox.flushed_by(1)
    assert outbox.take(0).send == (answer, send(1, to=3), send(99, to=2))


def test_a_flush_of_what_was_cut_counts_for_what_is_left() -> None:
    """Not for what came in its place."""
    outbox = Outbox()
    outbox.append(LogWrite(batches=(b"",)))
    outbox.take(10)
    outbox.append(LogWrite(truncate_to=4))
    outbox.append(LogWrite(batches=(b"",)))
    outbox.take(12)
    assert outbox.flushed_by(1) == 4
    assert outbox.flushed_by(2) == 12


def test_a_refused_read_waits_for_the_epoch_that_it_tells_of() -> None:
    """It was kept back for less; sent at once, a crash could make it untrue (found by seed 28 of the simulation)."""
    outbox = Outbox()
    outbox.append(LogWrite(batches=(b"",)))
    answer = fetch_response(ErrorCode.NONE, Election(epoch=1, leader_id=1), log_start_offset=0)
    outbox.send(Reply(waiter="w", body=answer, read=Read(0, 10)))
    outbox.take(1)
    refusal = fetch_response(ErrorCode.NOT_LEADER_OR_FOLLOWER, Election(epoch=2), log_start_offset=0)
    outbox.save(Election(epoch=2))
    outbox.replace_reads(lambda _: refusal)
    outbox.take(1)
    outbox.flushed_by(1)
    assert outbox.take(1).send == ()
    outbox.flushed_by(2)
    assert outbox.take(1).send == (Reply(waiter="w", body=refusal),)
