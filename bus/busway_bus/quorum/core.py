"""One node of the quorum of the metadata log: Raft by fetching, as Kafka's KRaft (KIP-595, KIP-996, KIP-853).

Here: `Quorum`, with messages and time in and `Ready` out.
Not here: files, sockets, clocks (the driver), role and transitions (`replica`), self-contained rules (`votes`,
`elections`, `log_view`), answers to fetches (`fetch_answers`), effects that wait for the disk (`outbox`), packing
(`wire`).

`now_ms` is monotonic; it is also the timestamp of the LeaderChange record: a driver adds elapsed monotonic time to the
wall clock at its start. The voter set is fixed. A follower that needs a snapshot downloads it from its leader: parts are
written as they come, and after the last one the driver checks the file; then it replaces the log (`Downloaded`).
"""

from collections.abc import Callable, Iterable
from typing import Final

from busway_bus.kernel.decision import Waiter
from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum import wire
from busway_bus.quorum.download import Download
from busway_bus.quorum.elections import may_vote, successor_backoff_ms, would_vote
from busway_bus.quorum.fetch_answers import FetchAnswers
from busway_bus.quorum.log_view import LogView, OffsetAndEpoch
from busway_bus.quorum.ready import (
    Answer,
    Downloaded,
    Message,
    NotLeading,
    Persisted,
    Proposal,
    QuorumRequest,
    QuorumResponse,
    Ready,
    Reply,
    Request,
    Send,
    Snapshotted,
)
from busway_bus.quorum.replica import NEVER_MS, Replica
from busway_bus.quorum.settings import QuorumSettings
from busway_bus.quorum.snapshot_wire import snapshot_request
from busway_bus.quorum.states import Election, Event, Role
from busway_bus.quorum.voters import ReplicaKey, VoterSet
from busway_bus.quorum.votes import BallotResult
from busway_protocol.errors import ErrorCode
from busway_protocol.machine import Chance
from busway_protocol.messages.fetch import FetchRequest, FetchResponse
from busway_protocol.messages.fetch import PartitionData as FetchedPartition
from busway_protocol.messages.metadata_snapshots import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
)
from busway_protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from busway_protocol.types import Buffer

_DOWNLOAD_ENDS: Final = frozenset({ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE})


class Quorum:
    """One replica of the metadata log, as a driver sees it.

    Args:
        me: this node, and the directory of its log.
        election, log: as they are on the node's disk.
        chance: spreads elections and picks the voter to fetch from; no rule depends on it.
        cluster_id: requests with another are refused; None if unknown.
    """

    def __init__(
        self,
        *,
        me: ReplicaKey,
        voters: VoterSet,
        election: Election,
        log: LogView,
        chance: Chance,
        now_ms: int,
        settings: QuorumSettings | None = None,
        cluster_id: str | None = None,
    ) -> None:
        self.settings = settings or QuorumSettings()
        self.replica = Replica(
            me=me, voters=voters, election=election, log=log, chance=chance, settings=self.settings, now_ms=now_ms
        )
        self._me, self._voters = me, voters
        self._requests, self._outbox = self.replica.requests, self.replica.outbox
        self._chance, self._cluster_id = chance, cluster_id
        self._fetches = FetchAnswers(self.replica)

    # What holds now

    @property
    def role(self) -> Role:
        return self.replica.role

    @property
    def epoch(self) -> int:
        return self.replica.election.epoch

    @property
    def leader_id(self) -> int:
        return self.replica.election.leader_id

    @property
    def high_watermark(self) -> int:
        return self.replica.high_watermark

    @property
    def log(self) -> LogView:
        """The log, as it will be after all pending writes."""
        return self.replica.log

    def wake_ms(self, now_ms: int) -> int:
        """Return when `tick` is due, unless a message arrives before."""
        times = [self.replica.deadline_ms]
        if self.replica.leadership is not None:
            times.append(self.replica.leadership.wake_ms())
        if (wake := self._requests.wake_ms(now_ms)) is not None:
            times.append(wake)
        return min(times)

    # Input

    def step(self, message: Message, now_ms: int) -> Ready:
        match message:
            case Request():
                self._asked(message, now_ms)
            case Answer():
                self._answered(message, now_ms)
            case Persisted():
                self.replica.persisted(message.number)
            case Downloaded():
                self._downloaded(message, now_ms)
            case Snapshotted():
                self.log.snapshotted(message.snapshots, message.start_offset)
        return self.tick(now_ms)

    def tick(self, now_ms: int) -> Ready:
        self._requests.expire(now_ms)
        replica, role = self.replica, None
        while role is not replica.role:
            role = replica.role
            self._poll(now_ms)
        return self._outbox.take(replica.log.end_offset)

    def propose(self, batch: Buffer, now_ms: int, waiter: Waiter = None) -> tuple[Proposal, Ready]:
        """Append a batch; a later `Ready` returns it as committed or discarded.

        Raises:
            NotLeading: this node does not lead.
            TooManyProposals: too many proposals wait for a majority.
        """
        leadership = self.replica.leadership
        if leadership is None:
            raise NotLeading(self.leader_id)
        leadership.make_room()
        proposal = self.replica.append(batch, waiter)
        leadership.proposed(proposal)
        return proposal, self.tick(now_ms)

    def withdraw(self, offset: int, now_ms: int) -> Ready:
        """Withdraw a leader's unwritten proposals from `offset` on.

        No other node has seen them; a `Ready` returns them as discarded.
        """
        self.replica.withdraw(offset)
        return self.tick(now_ms)

    def resign(self, now_ms: int) -> Ready:
        """Stop leading, as before a shutdown; the others are notified and elect."""
        if self.role is Role.LEADER:
            self.replica.resign(now_ms)
        return self.tick(now_ms)

    # Time

    def _poll(self, now_ms: int) -> None:
        replica = self.replica
        due = now_ms >= replica.deadline_ms
        match self.role:
            case Role.LEADER:
                self._poll_leader(now_ms)
            case Role.RESIGNED if due:
                replica.move(Event.TIMED_OUT, now_ms, replica.election.in_epoch(self.epoch + 1))
            case Role.RESIGNED:
                request = wire.end_request(self._cluster_id, self._me.id, self.epoch, replica.successors)
                self._ask_voters(replica.to_notify, lambda _: request, now_ms)
            case Role.PROSPECTIVE | Role.CANDIDATE:
                self._poll_ballot(now_ms, due=due)
            case Role.UNATTACHED | Role.FOLLOWER if due:
                replica.move(Event.TIMED_OUT, now_ms)
            case Role.UNATTACHED:
                self._fetch_from_any(now_ms)
            case Role.FOLLOWER:
                self._fetch_from_leader(now_ms)

    def _poll_ballot(self, now_ms: int, *, due: bool) -> None:
        ballot, log = self.replica.ballot, self.log
        assert ballot is not None
        pre_vote = self.role is Role.PROSPECTIVE
        match ballot.result:
            case BallotResult.WON if pre_vote:
                self.replica.stand(now_ms)
            case BallotResult.WON:
                self.replica.lead(ballot.granted, now_ms)
            case result if pre_vote and (due or result is BallotResult.LOST):
                self.replica.give_up_standing(now_ms)
            case _ if due:
                self.replica.move(Event.TIMED_OUT, now_ms)
            case BallotResult.OPEN:
                self._ask_voters(
                    ballot.unanswered,
                    lambda voter: wire.vote_request(
                        self._cluster_id, voter, self._me, self.epoch, log, pre_vote=pre_vote
                    ),
                    now_ms,
                )

    def _poll_leader(self, now_ms: int) -> None:
        leadership = self.replica.leadership
        assert leadership is not None
        if leadership.has_lost_its_majority(now_ms):
            self.replica.resign(now_ms)
            return
        for fetch in leadership.due_fetches(now_ms):
            self._fetches.reply_to_fetch(fetch.request)
        self._ask_voters(
            leadership.voters_to_notify(now_ms),
            lambda voter: wire.begin_request(self._cluster_id, voter, self._me.id, self.epoch),
            now_ms,
        )

    # Requests of this node

    def _ask_voters(
        self, node_ids: Iterable[int], request_to: Callable[[ReplicaKey], QuorumRequest], now_ms: int
    ) -> None:
        for node_id in sorted(node_ids):
            voter = self._voters.key(node_id)
            if voter is not None and self._requests.may_send(node_id, now_ms):
                self._ask(node_id, request_to(voter), now_ms)

    def _ask(self, node_id: int, request: QuorumRequest, now_ms: int) -> None:
        correlation = self._requests.sent(node_id, now_ms)
        self._outbox.send(Send(to=node_id, correlation=correlation, body=request))

    def _fetch_from_leader(self, now_ms: int) -> None:
        """Fetch from the leader; while it does not answer, look for another."""
        if self._requests.is_left_alone(self.leader_id, now_ms):
            self._fetch_from_any(now_ms)
        elif not self._requests.any_under_way:
            if self.replica.download is None:
                self._fetch(self.leader_id, now_ms)
            elif not self.replica.download.complete:
                self._fetch_snapshot(self.replica.download, now_ms)

    def _fetch_from_any(self, now_ms: int) -> None:
        """Fetch from a random other voter, whose response names the leader."""
        asked = [voter for voter in self._voters.ids if voter != self._me.id and self._requests.may_send(voter, now_ms)]
        if asked and not self._requests.any_under_way:
            self._fetch(asked[self._chance.randrange(len(asked))], now_ms)

    def _fetch(self, node_id: int, now_ms: int) -> None:
        request = wire.fetch_request(
            self._cluster_id,
            self._me,
            self.epoch,
            self.log,
            high_watermark=self.high_watermark,
            max_wait_ms=self.settings.fetch_max_wait_ms,
            max_bytes=self.settings.fetch_max_bytes,
        )
        self._ask(node_id, request, now_ms)

    def _fetch_snapshot(self, download: Download, now_ms: int) -> None:
        max_bytes = self.settings.fetch_snapshot_max_bytes
        request = snapshot_request(
            self._cluster_id,
            self._me,
            self.epoch,
            download.snapshot,
            position=download.position,
            max_bytes=max_bytes,
        )
        self._ask(self.leader_id, request, now_ms)

    def _answered(self, answer: Answer, now_ms: int) -> None:
        """Process a response; a node that did not help gets a backoff."""
        node_id = self._requests.answered(answer.correlation)
        if answer.refused and node_id == self.leader_id:
            self.replica.leader_is_gone(now_ms)
        if node_id is not None and not (answer.body is not None and self._helped(node_id, answer.body, now_ms)):
            self._requests.back_off(node_id, now_ms)

    def _helped(self, node_id: int, body: QuorumResponse, now_ms: int) -> bool:
        if body.error_code == ErrorCode.UNSUPPORTED_VERSION and self.role is Role.PROSPECTIVE:
            self.replica.stand(now_ms)  # the voter's release has no pre-vote: skip it, as in Kafka
            return True
        known = wire.leader_known_by(body)
        if known is None or known.epoch < self.epoch or known.error == ErrorCode.UNKNOWN_LEADER_EPOCH:
            return False
        before = self.replica.election
        if not self.replica.seen(known.epoch, known.leader_id, now_ms):
            return False
        if known.error in _DOWNLOAD_ENDS and self.role is Role.FOLLOWER and node_id == self.leader_id:
            self.replica.download = None  # the leader has deleted it: the next fetch gets the id of another
            return known.error == ErrorCode.SNAPSHOT_NOT_FOUND
        if known.error != ErrorCode.NONE:
            return self.replica.election != before
        match body:
            case VoteResponse() if self.replica.ballot is not None:
                self.replica.ballot.record(node_id, granted=body.topics[0].partitions[0].vote_granted)
            case EndQuorumEpochResponse():
                self.replica.to_notify.discard(node_id)
            case FetchResponse() if self.role is Role.FOLLOWER and node_id == self.leader_id:
                return self._fetched(body.responses[0].partitions[0], now_ms)
            case FetchSnapshotResponse() if self.role is Role.FOLLOWER and node_id == self.leader_id:
                return self._fetched_snapshot(body.topics[0].partitions[0], now_ms)
        return True

    def _fetched(self, fetched: FetchedPartition, now_ms: int) -> bool:
        """Truncate a diverging log, or append records; return whether the response helped."""
        replica = self.replica
        parted, snapshot = fetched.diverging_epoch, fetched.snapshot_id
        if (snapshot.end_offset >= 0) != (snapshot.epoch >= 0) or isinstance(fetched.records, list):
            return False
        if parted.epoch >= 0 and parted.end_offset < 0:
            return False
        replica.fetched = True
        replica.deadline_ms = now_ms + replica.timeout_ms()
        if parted.epoch >= 0:
            return replica.truncate(OffsetAndEpoch(parted.end_offset, parted.epoch))
        if snapshot.end_offset >= 0:
            return replica.begin_download(SnapshotId(snapshot.end_offset, snapshot.epoch))
        in_order = replica.append_fetched(fetched.records or b"")
        replica.raise_leaders_high_watermark(fetched.high_watermark)
        return in_order

    def _fetched_snapshot(self, part: PartitionSnapshot, now_ms: int) -> bool:
        """Continue a download; return whether the response helped.

        While the file is checked no time-out runs: the check takes as long as the snapshot is large.
        """
        replica = self.replica
        if not replica.received(part):
            return False
        assert replica.download is not None
        replica.deadline_ms = NEVER_MS if replica.download.complete else now_ms + replica.timeout_ms()
        return True

    def _downloaded(self, message: Downloaded, now_ms: int) -> None:
        """Install a checked snapshot, or leave a leader alone that sent a damaged one."""
        if self.replica.download is not None and self.replica.download.complete:
            self.replica.deadline_ms = now_ms + self.replica.timeout_ms()
        if not self.replica.downloaded(message):
            self._requests.back_off(self.leader_id, now_ms)

    # Requests of others

    def _asked(self, request: Request, now_ms: int) -> None:
        body = request.body
        if body.cluster_id is not None and self._cluster_id is not None and body.cluster_id != self._cluster_id:
            self._reply(request, wire.refused(body, ErrorCode.INCONSISTENT_CLUSTER_ID))
        elif not wire.is_for_this_log(body):
            self._reply(request, wire.of_another_log(body))
        elif isinstance(body, FetchRequest):
            self._fetches.asked_for_records(request, body, now_ms)
        elif isinstance(body, FetchSnapshotRequest):
            self._fetches.asked_for_snapshot(request, body, now_ms)
        else:
            self._reply(request, self._answer(body, now_ms))

    def _answer(
        self, body: VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest, now_ms: int
    ) -> QuorumResponse:
        match body:
            case VoteRequest():
                error, granted = self._asked_for_vote(body, now_ms)
                return wire.vote_response(error, self.replica.election, granted=granted)
            case BeginQuorumEpochRequest():
                return wire.begin_response(self._begin_epoch(body, now_ms), self.replica.election)
            case EndQuorumEpochRequest():
                return wire.end_response(self._end_epoch(body, now_ms), self.replica.election)

    def _asked_for_vote(self, request: VoteRequest, now_ms: int) -> tuple[ErrorCode, bool]:
        """Return the error, and whether the vote (or pre-vote) is granted."""
        asked = request.topics[0].partitions[0]
        # A candidate's epoch is above that of its last record; a prospective node has not raised its epoch.
        latest = asked.replica_epoch if asked.pre_vote else asked.replica_epoch - 1
        if asked.last_offset < 0 or not 0 <= asked.last_offset_epoch <= latest:
            return ErrorCode.INVALID_REQUEST, False
        if asked.replica_epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, False
        if asked.replica_id < 0 or asked.replica_id == self._me.id:
            return ErrorCode.INVALID_REQUEST, False
        replica = self.replica
        if asked.replica_epoch > self.epoch:
            replica.move(Event.EPOCH_SEEN, now_ms, replica.election.in_epoch(asked.replica_epoch))
        if not wire.is_addressed(request.voter_id, asked.voter_directory_id, self._me):
            return ErrorCode.INVALID_VOTER_KEY, False
        candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
        covers = self.log.is_covered_by(OffsetAndEpoch(asked.last_offset, asked.last_offset_epoch))
        if asked.pre_vote:
            return ErrorCode.NONE, would_vote(self.role, covers=covers, fetched=replica.fetched)
        granted = may_vote(self.role, replica.election, candidate, covers=covers)
        if granted:
            replica.vote_for(candidate, now_ms)
        return ErrorCode.NONE, granted

    def _begin_epoch(self, request: BeginQuorumEpochRequest, now_ms: int) -> ErrorCode:
        partition = request.topics[0].partitions[0]
        error = self._check_leader(partition.leader_id, partition.leader_epoch, now_ms)
        if error is ErrorCode.NONE and not wire.is_addressed(request.voter_id, partition.voter_directory_id, self._me):
            return ErrorCode.INVALID_VOTER_KEY
        return error

    def _end_epoch(self, request: EndQuorumEpochRequest, now_ms: int) -> ErrorCode:
        partition = request.topics[0].partitions[0]
        error = self._check_leader(partition.leader_id, partition.leader_epoch, now_ms)
        if error is ErrorCode.NONE and self.role is Role.FOLLOWER and self.replica.votes:
            preferred = [
                ReplicaKey(voter.candidate_id, voter.candidate_directory_id) for voter in partition.preferred_candidates
            ]
            preferred = preferred or [ReplicaKey(node_id) for node_id in partition.preferred_successors]
            if not preferred:  # the leader was restarted, and does not know who has most of its log
                self.replica.leader_is_gone(now_ms)
                return error
            backoff_ms = successor_backoff_ms(self._me, preferred, self.settings.election_backoff_max_ms)
            self.replica.deadline_ms = now_ms + backoff_ms
        return error

    def _check_leader(self, leader_id: int, epoch: int, now_ms: int) -> ErrorCode:
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if leader_id < 0 or not self.replica.seen(epoch, leader_id, now_ms):
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _reply(self, request: Request, body: QuorumResponse) -> None:
        self._outbox.send(Reply(waiter=request.waiter, body=body))
