"""One core: what it answers, asks and keeps, message by message."""

from typing import Any

import pytest
from tests.unit.busway_bus.quorum.bench import ELECTION_MS, ME, SECOND, SETTINGS, THIRD, Bench, batch, log

from busway_bus.kernel import limits
from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum import leadership
from busway_bus.quorum.leadership import CHECK_QUORUM_FACTOR
from busway_bus.quorum.log_view import Behind, Diverging, LogView, OffsetAndEpoch
from busway_bus.quorum.ready import (
    Answer,
    CommittedRecordsLost,
    LogWrite,
    NotLeading,
    Persisted,
    Read,
    Request,
    TooManyProposals,
)
from busway_bus.quorum.states import TRANSITIONS, Election, Event, Role
from busway_bus.quorum.voters import ReplicaKey
from busway_bus.quorum.wire import begin_request, fetch_response, vote_request, vote_response
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.fetch import FetchRequest
from busway_protocol.messages.metadata_snapshots import FetchSnapshotRequest
from busway_protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    VoteRequest,
    VoteResponse,
)
from busway_protocol.records.batch import read_header
from busway_protocol.records.control import ControlType, control_type
from busway_protocol.records.record import decode_records

ROLES = [role for role in Role if role is not Role.UNATTACHED]


def in_role(role: Role, **values: Any) -> Bench:
    """A core in this role."""
    bench = Bench(**values)
    if role is not Role.UNATTACHED:
        bench.become(role)
    return bench


# The table, from outside


@pytest.mark.parametrize("role", Role)
def test_a_later_epoch_unseats_everybody(role: Role) -> None:
    """Saved before the answer."""
    bench = in_role(role)
    epoch = bench.core.epoch + 3
    answer = bench.ask_for_vote(SECOND, epoch, LogView(), pre_vote=True)
    assert (bench.core.role, bench.core.epoch, bench.core.leader_id) == (Role.UNATTACHED, epoch, -1)
    assert bench.saved[-1] == Election(epoch=epoch)
    assert answer.leader_epoch == epoch


@pytest.mark.parametrize("role", Role)
def test_a_later_leader_is_followed_by_everybody(role: Role) -> None:
    """Saved before the answer."""
    bench = in_role(role)
    epoch = bench.core.epoch + 1
    answer = bench.tell_of_leader(THIRD, epoch)
    assert (bench.core.role, bench.core.leader_id) == (Role.FOLLOWER, 3)
    assert (answer.error_code, answer.leader_id, answer.leader_epoch) == (ErrorCode.NONE, 3, epoch)
    assert bench.saved[-1] == Election(epoch=epoch, leader_id=3)
    assert isinstance(bench.last_to(3).body, FetchRequest)


@pytest.mark.parametrize("role", ROLES)
def test_an_earlier_epoch_moves_nobody(role: Role) -> None:
    """FENCED_LEADER_EPOCH, with what is known here."""
    bench = in_role(role)
    bench.ask_for_vote(SECOND, 5, LogView(), pre_vote=True)
    before = (bench.core.role, bench.core.epoch, len(bench.saved))
    answers = [
        bench.ask_for_vote(SECOND, 4, LogView()),
        bench.ask_for_vote(SECOND, 4, LogView(), pre_vote=True),
        bench.tell_of_leader(SECOND, 4),
        bench.tell_of_end(SECOND, 4),
        bench.fetch(SECOND, LogView(), 4),
    ]
    assert {answer.error_code for answer in answers} == {ErrorCode.FENCED_LEADER_EPOCH}
    assert [answer.leader_epoch for answer in answers[:4]] == [5] * 4
    assert answers[4].current_leader.leader_epoch == 5
    assert (bench.core.role, bench.core.epoch, len(bench.saved)) == before


def test_every_move_of_the_table_is_made() -> None:
    """A walk through all roles; what the table says of saving holds, and no move is left out but those of the two tests above."""
    made: set[tuple[Role, Event]] = set()
    bench = Bench()

    def moved(event: Event, role: Role) -> None:
        before = bench.core.role
        saved = len(bench.saved)
        yield_to[event]()
        assert bench.core.role is role
        made.add((before, event))
        if not TRANSITIONS[before, event].saves:
            assert len(bench.saved) == saved

    yield_to: dict[Event, Any] = {}
    yield_to[Event.VOTED] = lambda: bench.ask_for_vote(SECOND, bench.core.epoch or 1, LogView())
    yield_to[Event.TIMED_OUT] = lambda: bench.wait(ELECTION_MS)
    yield_to[Event.WOULD_WIN] = lambda: bench.answer_vote(2, granted=True)
    yield_to[Event.ELECTED] = lambda: bench.answer_vote(2, granted=True)
    yield_to[Event.RESIGNED] = lambda: bench.do(bench.core.resign(bench.now_ms))
    yield_to[Event.LEADER_REMEMBERED] = lambda: [bench.answer_vote(node, granted=False) for node in (2, 3)]

    moved(Event.VOTED, Role.UNATTACHED)
    assert bench.saved[-1].voted == SECOND
    moved(Event.TIMED_OUT, Role.PROSPECTIVE)
    bench.ask_for_vote(SECOND, 2, LogView(), pre_vote=True)
    bench.wait(ELECTION_MS)
    assert bench.core.role is Role.PROSPECTIVE
    moved(Event.VOTED, Role.PROSPECTIVE)
    for node in (2, 3):
        bench.answer_vote(node, granted=False)
    assert bench.core.role is Role.UNATTACHED
    made.add((Role.PROSPECTIVE, Event.TIMED_OUT))
    moved(Event.TIMED_OUT, Role.PROSPECTIVE)
    moved(Event.WOULD_WIN, Role.CANDIDATE)
    assert bench.saved[-1] == Election(epoch=3).voting_for(ME)
    bench.wait(ELECTION_MS)
    assert bench.core.role is Role.PROSPECTIVE
    made.add((Role.CANDIDATE, Event.TIMED_OUT))
    moved(Event.WOULD_WIN, Role.CANDIDATE)
    moved(Event.ELECTED, Role.LEADER)
    assert bench.saved[-1] == Election(epoch=4).voting_for(ME).with_leader(ME.id, 4)
    moved(Event.RESIGNED, Role.RESIGNED)
    bench.wait(ELECTION_MS)
    assert (bench.core.role, bench.core.epoch) == (Role.PROSPECTIVE, 5)
    made |= {(Role.RESIGNED, Event.TIMED_OUT)}
    bench.tell_of_leader(SECOND, 6)
    bench.wait(SETTINGS.fetch_timeout_ms)
    assert (bench.core.role, bench.core.leader_id) == (Role.PROSPECTIVE, 2)
    made.add((Role.FOLLOWER, Event.TIMED_OUT))
    moved(Event.LEADER_REMEMBERED, Role.FOLLOWER)
    assert set(TRANSITIONS) - made == {
        (role, event) for role in Role for event in (Event.EPOCH_SEEN, Event.LEADER_SEEN)
    }


# Elections


def test_one_that_votes_alone_leads_at_once() -> None:
    """And commits by its own disk alone; it begins again in a later epoch."""
    bench = Bench(voters=(1,))
    assert (bench.core.role, bench.core.epoch, bench.applied) == (Role.LEADER, 1, [1])
    again = Bench(log(1), bench.core.replica.election, voters=(1,))
    assert (again.core.role, again.core.epoch > 1, again.applied) == (Role.LEADER, True, [2])


def test_an_epoch_begins_with_the_record_of_its_leader() -> None:
    """A control record that names voters and those that voted (KIP-595)."""
    bench = in_role(Role.LEADER)
    written = bench.writes[0].batches[0]
    record = decode_records(written)[0]
    assert control_type(record.key) == ControlType.LEADER_CHANGE
    assert (read_header(written).base_offset, read_header(written).partition_leader_epoch) == (0, 1)
    assert record.value is not None
    assert record.value.hex() == "00000000000104000000010000000002000000000300030000000100000000020000"


def test_a_pre_vote_binds_nobody() -> None:
    """It is given to everybody whose log will do, and nothing of it is saved (KIP-996)."""
    bench = Bench(log(1), Election(epoch=1))
    for candidate in (SECOND, THIRD):
        assert bench.ask_for_vote(candidate, 1, log(1), pre_vote=True).vote_granted
    assert not bench.ask_for_vote(SECOND, 1, LogView(), pre_vote=True).vote_granted
    assert bench.saved == []
    assert bench.ask_for_vote(THIRD, 2, log(1)).vote_granted


def test_a_follower_of_a_leader_that_answers_disturbs_it_for_nobody() -> None:
    """Until the leader has answered it would vote."""
    bench = in_role(Role.FOLLOWER)
    assert bench.ask_for_vote(THIRD, 1, LogView(), pre_vote=True).vote_granted
    bench.answer_fetch(2)
    assert not bench.ask_for_vote(THIRD, 1, LogView(), pre_vote=True).vote_granted


def test_a_follower_whose_leader_refuses_connections_stands_soon() -> None:
    """Meanwhile it would vote; a lost connection alone changes neither."""
    for refused in (False, True):
        bench = in_role(Role.FOLLOWER)
        bench.answer_fetch(2)
        lost = Answer(correlation=bench.last_to(2).correlation, body=None, refused=refused)
        bench.do(bench.core.step(lost, bench.now_ms))
        if bench.core.role is Role.FOLLOWER:
            assert bench.ask_for_vote(THIRD, 1, LogView(), pre_vote=True).vote_granted is refused
        bench.wait(ELECTION_MS // 10)
        assert (bench.core.role is Role.PROSPECTIVE) is refused


def test_a_voter_that_refuses_connections_and_does_not_lead_is_no_news() -> None:
    """The follower goes on to follow."""
    bench = in_role(Role.FOLLOWER)
    bench.answer_fetch(2)
    bench.answer(2, None)
    lost = Answer(correlation=bench.last_to(3).correlation, body=None, refused=True)
    bench.do(bench.core.step(lost, bench.now_ms))
    bench.wait(ELECTION_MS // 10)
    assert bench.core.role is Role.FOLLOWER


def test_a_vote_is_given_once_in_an_epoch_and_remembered_over_a_restart() -> None:
    """Again to the same candidate; to a log that is behind never."""
    bench = Bench(log(1, 1), Election(epoch=1))
    assert not bench.ask_for_vote(THIRD, 2, log(1)).vote_granted
    assert bench.ask_for_vote(SECOND, 2, log(1, 1)).vote_granted
    assert bench.ask_for_vote(SECOND, 2, log(1, 1)).vote_granted
    assert not bench.ask_for_vote(THIRD, 2, log(1, 1)).vote_granted
    again = Bench(log(1, 1), bench.saved[-1])
    assert not again.ask_for_vote(THIRD, 2, log(1, 1)).vote_granted
    assert again.ask_for_vote(SECOND, 2, log(1, 1)).vote_granted


def test_an_answer_waits_for_the_disk() -> None:
    """A vote is not sent before it is kept."""
    bench = Bench(disk_works=False)
    assert bench.ask_for_vote(SECOND, 1, LogView()) is None
    assert bench.saved == [Election(epoch=1).voting_for(SECOND)]
    bench.do(bench.core.step(Persisted(number=1), bench.now_ms))
    assert bench.replies[-1].body.topics[0].partitions[0].vote_granted


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"last_offset": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_offset_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_offset_epoch": 2}, ErrorCode.INVALID_REQUEST),
        ({"last_offset_epoch": 2, "pre_vote": True}, ErrorCode.NONE),
        ({"last_offset_epoch": 3, "pre_vote": True}, ErrorCode.INVALID_REQUEST),
        ({"replica_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"replica_id": 1}, ErrorCode.INVALID_REQUEST),
        ({"voter_directory_id": SECOND.directory_id}, ErrorCode.INVALID_VOTER_KEY),
        ({"voter_directory_id": ME.directory_id}, ErrorCode.NONE),
    ],
)
def test_requests_that_cannot_be_true_are_refused(changes: dict[str, Any], error: ErrorCode) -> None:
    """With Kafka's codes."""
    request = vote_request("here", ReplicaKey(1), SECOND, 2, log(1), pre_vote=False)
    for name, value in changes.items():
        setattr(request.topics[0].partitions[0], name, value)
    assert Bench().ask(request).error_code == error


def test_requests_for_something_else_are_refused_as_a_whole() -> None:
    """Another cluster, another topic, none at all."""
    bench = Bench()
    request: Any = vote_request("elsewhere", ME, SECOND, 2, log(1), pre_vote=False)
    wrong: Any = begin_request("here", ME, 2, 1)
    wrong.topics[0].topic_name = "t"
    empty: Any = begin_request("here", ME, 2, 1)
    empty.topics = []
    for body, error in (
        (request, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (wrong, ErrorCode.INVALID_REQUEST),
        (empty, ErrorCode.INVALID_REQUEST),
    ):
        bench.do(bench.core.step(Request(waiter="w", body=body), bench.now_ms))
        assert (bench.replies[-1].body.error_code, bench.replies[-1].body.topics) == (error, [])  # type: ignore[union-attr]
    assert bench.core.epoch == 0


def test_a_second_leader_of_an_epoch_is_not_believed() -> None:
    """INVALID_REQUEST; nor is a node that says that this node leads."""
    bench = in_role(Role.FOLLOWER)
    assert bench.tell_of_leader(THIRD, 1).error_code == ErrorCode.INVALID_REQUEST
    assert bench.tell_of_leader(ME, 2).error_code == ErrorCode.INVALID_REQUEST
    assert (bench.core.leader_id, bench.core.epoch) == (2, 1)


def test_a_voter_without_pre_votes_is_asked_for_its_vote() -> None:
    """UNSUPPORTED_VERSION makes a candidate, as in Kafka."""
    bench = in_role(Role.PROSPECTIVE)
    bench.answer(2, VoteResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, topics=[]))
    assert bench.core.role is Role.CANDIDATE
    body = bench.last_to(2).body
    assert isinstance(body, VoteRequest)
    assert not body.topics[0].partitions[0].pre_vote


def test_late_answers_to_a_pre_vote_elect_nobody() -> None:
    """Whatever was asked before this node was a candidate is not waited for."""
    bench = in_role(Role.PROSPECTIVE)
    late = bench.last_to(3)
    bench.answer_vote(2, granted=True)
    answer = Answer(
        correlation=late.correlation, body=vote_response(ErrorCode.NONE, Election(epoch=bench.core.epoch), granted=True)
    )
    bench.do(bench.core.step(answer, bench.now_ms))
    assert bench.core.role is Role.CANDIDATE


# A leader


def test_a_leader_commits_what_a_majority_has_flushed() -> None:
    """Its proposals come back in their order, once each; nothing is answered before a record of its epoch is on a majority."""
    bench = in_role(Role.LEADER, view=log(0, 0))
    first, second = bench.propose(b"a"), bench.propose(b"b")
    assert (first.first_offset, second.first_offset) == (3, 4)
    assert bench.fetch(SECOND, log(0, 0), 1).high_watermark == -1
    assert (bench.applied, bench.committed) == ([], [])
    assert bench.fetch(SECOND, log(0, 0, 1, 1), 1).high_watermark == 4
    assert (bench.applied, bench.committed) == ([4], [first])
    bench.fetch(THIRD, log(0, 0, 1, 1, 1), 1)
    assert (bench.applied, bench.committed) == ([4, 5], [first, second])
    bench.fetch(SECOND, log(0, 0, 1), 1)
    assert bench.core.high_watermark == 5


def test_a_leader_does_not_count_what_it_has_not_flushed() -> None:
    """Two of three disks, not one and a memory."""
    bench = in_role(Role.LEADER)
    bench.fetch(SECOND, log(1), 1)
    bench.disk_works = False
    bench.propose()
    bench.fetch(SECOND, log(1, 1), 1)
    assert bench.core.high_watermark == 1


def test_fetches_are_answered_by_where_the_logs_part() -> None:
    """Records, a diverging epoch, or errors that name the leader."""
    bench = in_role(Role.LEADER, view=log(0, 0))
    bench.fetch(SECOND, log(0, 0), 1)
    assert bench.replies[-1].read == Read(2, 1_000)
    parted = bench.fetch(SECOND, log(0, 0, 0), 1)
    assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset, bench.replies[-1].read) == (0, 2, None)
    newer = bench.fetch(SECOND, LogView(), 2)
    assert (newer.error_code, newer.current_leader.leader_id) == (ErrorCode.UNKNOWN_LEADER_EPOCH, 1)
    assert bench.fetch(ReplicaKey(1, THIRD.directory_id), LogView(), 1).error_code == ErrorCode.INVALID_REQUEST
    assert bench.fetch(SECOND, LogView(), 1, max_wait_ms=-1).error_code == ErrorCode.INVALID_REQUEST


def test_who_does_not_lead_says_who_does() -> None:
    """NOT_LEADER_OR_FOLLOWER."""
    answer = in_role(Role.FOLLOWER).fetch(THIRD, LogView(), 1)
    assert (answer.error_code, answer.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


def test_a_fetch_behind_the_log_is_told_of_the_snapshot() -> None:
    """KIP-630."""
    view = LogView(start_offset=10, end_offset=10, flushed_offset=10, snapshots={SnapshotId(10, 0): 100})
    answer = in_role(Role.LEADER, view=view).fetch(SECOND, log(0, 0), 1)
    assert (answer.snapshot_id.end_offset, answer.snapshot_id.epoch, answer.log_start_offset) == (10, 0, 10)


def test_a_fetch_waits_for_records_the_high_watermark_or_its_time() -> None:
    """And for a newer one of the same replica."""
    bench = in_role(Role.LEADER)
    bench.fetch(SECOND, log(1), 1)
    waits = {"max_wait_ms": 400, "high_watermark": 1}
    assert bench.fetch(SECOND, log(1), 1, **waits) is None
    bench.propose()
    assert bench.replies[-1].read == Read(1, 1_000)
    assert bench.fetch(SECOND, log(1, 1), 1, **waits).high_watermark == 2
    assert bench.fetch(SECOND, log(1, 1), 1, **{**waits, "high_watermark": 2}) is None
    answered = len(bench.replies)
    assert bench.fetch(SECOND, log(1, 1), 1, **{**waits, "high_watermark": 2}) is not None
    assert len(bench.replies) == answered + 1
    bench.wait(390)
    assert len(bench.replies) == answered + 1
    bench.wait(10)
    assert len(bench.replies) == answered + 2
    assert bench.replies[-1].read is None


def test_a_leader_without_a_majority_resigns() -> None:
    """And tells the others who has most of its log; its proposals are undecided."""
    bench = in_role(Role.LEADER)
    bench.fetch(THIRD, log(1), 1)
    proposal = bench.propose()
    bench.fetch(SECOND, log(1), 1, max_wait_ms=500, high_watermark=1)
    bench.wait(int(SETTINGS.fetch_timeout_ms * CHECK_QUORUM_FACTOR) - 10)
    assert bench.core.role is Role.LEADER
    bench.wait(10)
    assert bench.core.role is Role.RESIGNED
    assert bench.discarded == [proposal]
    body = bench.last_to(2).body
    assert isinstance(body, EndQuorumEpochRequest)
    assert [candidate.candidate_id for candidate in body.topics[0].partitions[0].preferred_candidates] == [2, 3]
    with pytest.raises(NotLeading):
        bench.core.propose(batch(), bench.now_ms)


def test_a_lost_leadership_lets_nobody_wait() -> None:
    """Fetches are refused, proposals undecided."""
    bench = in_role(Role.LEADER)
    bench.fetch(SECOND, log(1), 1)
    assert bench.fetch(SECOND, log(1), 1, max_wait_ms=400, high_watermark=1) is None
    proposals = [bench.propose() for _ in range(2)]
    bench.fetch(THIRD, log(1, 1, 1), 1, max_wait_ms=400, high_watermark=3)
    waiting = bench.propose()
    bench.tell_of_leader(THIRD, 2)
    assert bench.committed == proposals
    assert bench.discarded == [waiting]
    with pytest.raises(NotLeading, match="node 3 leads") as refused:
        bench.core.propose(batch(), bench.now_ms)
    assert refused.value.leader_id == 3


def test_proposals_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader without a majority does not take in without end."""
    assert leadership.PROPOSALS_MAX == limits.PROPOSALS_MAX
    monkeypatch.setattr(leadership, "PROPOSALS_MAX", 2)
    bench = in_role(Role.LEADER)
    bench.propose()
    bench.propose()
    with pytest.raises(TooManyProposals, match="try again"):
        bench.propose()


def test_voters_that_do_not_fetch_are_told_again() -> None:
    """BeginQuorumEpoch, at once and every half fetch timeout; not to those that fetch."""
    bench = in_role(Role.LEADER)
    assert {send.to for send in bench.sent if isinstance(send.body, BeginQuorumEpochRequest)} == {2, 3}
    for node_id in (2, 3):
        bench.answer(node_id, bench.begun(1))
    bench.fetch(SECOND, log(1), 1)
    before = len(bench.sent)
    bench.fetch(SECOND, log(1), 1)
    bench.wait(SETTINGS.fetch_timeout_ms // 2 - 10)
    bench.fetch(SECOND, log(1), 1)
    bench.wait(10)
    assert [send.to for send in bench.sent[before:]] == [3]


# A follower


def test_a_follower_copies_and_asks_on_when_it_has_flushed() -> None:
    """Its next fetch is its acknowledgement."""
    bench = in_role(Role.FOLLOWER)
    bench.disk_works = False
    asked = len(bench.sent)
    records = batch(b"a", offset=0, epoch=1) + batch(b"b", offset=1, epoch=1)
    bench.answer_fetch(2, records, high_watermark=1)
    assert (bench.core.log.end_offset, bench.applied, len(bench.sent)) == (2, [], asked)
    bench.do(bench.core.step(Persisted(number=99), bench.now_ms))
    assert bench.applied == [1]
    body = bench.last_to(2).body
    assert isinstance(body, FetchRequest)
    fetch = body.topics[0].partitions[0]
    assert (fetch.fetch_offset, fetch.last_fetched_epoch, fetch.current_leader_epoch) == (2, 1, 1)
    assert (fetch.replica_directory_id, body.replica_state.replica_id) == (ME.directory_id, 1)


@pytest.mark.parametrize(
    "records",
    [
        batch(offset=1, epoch=1),
        batch(offset=0, epoch=2),
        batch(offset=0, epoch=1)[:-1] + b"\xff",
        b"\x00" * 80,
    ],
    ids=["a hole", "a later epoch", "damaged", "no batch"],
)
def test_batches_that_do_not_fit_are_left(records: bytes) -> None:
    """The leader is left alone for a moment, and asked again."""
    bench = in_role(Role.FOLLOWER)
    asked = bench.last_to(2).correlation
    bench.answer_fetch(2, records)
    assert (bench.core.log.end_offset, bench.writes) == (0, [])
    assert bench.last_to(2).correlation == asked
    bench.answer(3, None) if bench.sent[-1].to == 3 else None
    bench.wait(2 * SETTINGS.retry_backoff_ms)
    assert bench.last_to(2).correlation > asked


def test_a_follower_cuts_its_log_where_the_leader_says() -> None:
    """And never below what was committed: then it stops."""
    bench = Bench(log(0, 0, 1), Election(epoch=1))
    bench.become(Role.FOLLOWER)
    bench.answer_fetch(2, parted=Diverging(OffsetAndEpoch(2, 0)))
    assert bench.writes == [LogWrite(truncate_to=2)]
    assert bench.core.log.end == OffsetAndEpoch(2, 0)
    bench.answer_fetch(2, batch(offset=2, epoch=2), high_watermark=3)
    assert bench.applied == [2, 3]
    with pytest.raises(CommittedRecordsLost, match="from offset 2 on, and those below 3 were committed"):
        bench.answer_fetch(2, parted=Diverging(OffsetAndEpoch(2, 0)))


def test_a_place_to_cut_that_cannot_be_is_no_reason_to_stop() -> None:
    """The leader is left alone for a moment."""
    bench = Bench(log(0, 0, 1), Election(epoch=1))
    bench.become(Role.FOLLOWER)
    bench.answer_fetch(2, parted=Diverging(OffsetAndEpoch(-1, 0)))
    assert (bench.core.log.end_offset, bench.writes) == (3, [])


def test_a_follower_that_needs_a_snapshot_fetches_it_from_its_leader() -> None:
    """Its own log stays until the snapshot is there."""
    bench = in_role(Role.FOLLOWER)
    bench.answer_fetch(2, parted=Behind(SnapshotId(10, 1)))
    assert isinstance(bench.last_to(2).body, FetchSnapshotRequest)
    assert (bench.core.log.end_offset, bench.writes, bench.applied) == (0, [], [])


def test_an_answer_that_is_not_waited_for_changes_nothing() -> None:
    """A second copy of it, say."""
    bench = in_role(Role.FOLLOWER)
    asked = bench.last_to(2)
    bench.answer_fetch(2, batch(offset=0, epoch=1))
    copy = fetch_response(
        ErrorCode.NONE,
        Election(epoch=1, leader_id=2),
        log_start_offset=0,
        parted=Diverging(OffsetAndEpoch(0, 0)),
    )
    bench.do(bench.core.step(Answer(correlation=asked.correlation, body=copy), bench.now_ms))
    assert bench.core.log.end_offset == 1


def test_successors_of_a_leader_that_resigns_stand_by_their_rank() -> None:
    """The first at once, others later; a node without it waits for the fetch timeout."""
    first, second = in_role(Role.FOLLOWER), in_role(Role.FOLLOWER)
    first.tell_of_end(SECOND, 1, ME, THIRD)
    assert first.core.role is Role.PROSPECTIVE
    second.tell_of_end(SECOND, 1, THIRD, ME)
    assert second.core.role is Role.FOLLOWER
    second.wait(SETTINGS.election_backoff_max_ms // 2)
    assert second.core.role is Role.PROSPECTIVE


def test_the_successor_of_a_restarted_leader_is_elected_at_once() -> None:
    """It names no successors: no voter waits for the longest backoff, and each grants a pre-vote."""
    bench = in_role(Role.FOLLOWER)
    bench.answer_fetch(2)
    bench.tell_of_end(SECOND, 1)
    assert bench.ask_for_vote(THIRD, 1, LogView(), pre_vote=True).vote_granted
    bench.wait(SETTINGS.election_timeout_ms // 10)
    assert bench.core.role is Role.PROSPECTIVE


def test_a_leader_that_does_not_answer_is_looked_for_elsewhere() -> None:
    """A refused connection, and a request that times out."""
    bench = in_role(Role.FOLLOWER)
    bench.answer(2, None)
    assert bench.sent[-1].to == 3
    bench.answer(3, fetch_response(ErrorCode.NONE, Election(epoch=4, leader_id=3), log_start_offset=0))
    assert (bench.core.role, bench.core.leader_id, bench.core.epoch) == (Role.FOLLOWER, 3, 4)


def test_an_observer_finds_the_leader_and_never_stands() -> None:
    """It asks the voters, and copies."""
    bench = Bench(voters=(2, 3))
    bench.wait(10 * SETTINGS.fetch_timeout_ms)
    assert bench.core.role is Role.UNATTACHED
    asked = bench.sent[-1].to
    election = Election(epoch=4, leader_id=5 - asked)
    bench.answer(asked, fetch_response(ErrorCode.NOT_LEADER_OR_FOLLOWER, election, log_start_offset=0))
    assert (bench.core.role, bench.core.leader_id) == (Role.FOLLOWER, election.leader_id)
    bench.answer_fetch(election.leader_id, batch(offset=0, epoch=4), high_watermark=1)
    assert bench.applied == [1]
    bench.wait(10 * SETTINGS.fetch_timeout_ms)
    assert bench.core.role is Role.FOLLOWER


def test_a_leader_takes_back_what_it_could_not_write() -> None:
    """It is discarded, what comes after it gets its offsets, and what was written before it is committed all the same."""
    bench = Bench(voters=(1,), disk_works=False)
    assert bench.core.role is Role.LEADER
    first, second, third = bench.propose(b"1"), bench.propose(b"2"), bench.propose(b"3")
    bench.do(bench.core.withdraw(second.first_offset, bench.now_ms))
    assert bench.discarded == [second, third]
    again = bench.propose(b"4")
    assert again.first_offset == second.first_offset
    bench.do(bench.core.step(Persisted(number=bench.core._outbox.number - 1), bench.now_ms))
    assert bench.committed == [first]
    bench.do(bench.core.step(Persisted(number=bench.core._outbox.number), bench.now_ms))
    assert bench.committed == [first, again]
