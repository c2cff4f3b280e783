"""One replica of the metadata quorum: role, election, log, and their transitions.

Here: the transitions of `states.TRANSITIONS` with side effects, changes of the log with the commits that follow.
Not here: messages and time, which cause them (`core`).
"""

from typing import Final

from busway_bus.kernel.decision import Waiter
from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum import wire
from busway_bus.quorum.download import Download
from busway_bus.quorum.leadership import Leadership
from busway_bus.quorum.log_view import LogView, OffsetAndEpoch
from busway_bus.quorum.outbox import Outbox
from busway_bus.quorum.ready import (
    CommittedRecordsLost,
    Downloaded,
    LogWrite,
    Proposal,
    QuorumResponse,
    ReadSnapshot,
    Reply,
)
from busway_bus.quorum.records import leader_change
from busway_bus.quorum.requests import Requests
from busway_bus.quorum.settings import QuorumSettings
from busway_bus.quorum.snapshot_wire import snapshot_error
from busway_bus.quorum.states import NOBODY, TRANSITIONS, Election, Event, Role, role_at_start
from busway_bus.quorum.voters import ReplicaKey, VoterSet
from busway_bus.quorum.votes import Ballot
from busway_protocol.errors import ErrorCode
from busway_protocol.machine import Chance
from busway_protocol.messages.fetch import FetchResponse
from busway_protocol.messages.metadata_snapshots import PartitionSnapshot
from busway_protocol.records.batch import CorruptBatch, assign_offset, iter_batches, read_header, verify_crc
from busway_protocol.types import Buffer

NEVER_MS: Final = 2**62
_GONE_SPREAD: Final = 10
"""Voters that find their leader gone stand within this part of the election timeout: one usually wins at once."""
_WAITS_ON: Final = frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.RESIGNED})
"""Roles that keep their deadline when a higher epoch is seen.

A node that raises epochs in vain must not prevent elections.
"""


class Replica:
    """One replica of the metadata log.

    Attributes:
        election, role: of the current epoch.
        high_watermark: records below it are committed and may be applied; it never falls. At the start all that a
            snapshot covers is.
        ballot: votes received, while prospective or candidate.
        deadline_ms: when the time-out of the role expires.
        fetched: the current leader has answered a fetch.
        to_notify, successors: voters without an acknowledged EndQuorumEpoch, and the preferred successors.
        outbox, requests: pending effects, and requests in flight.
    """

    def __init__(
        self,
        *,
        me: ReplicaKey,
        voters: VoterSet,
        election: Election,
        log: LogView,
        chance: Chance,
        settings: QuorumSettings,
        now_ms: int,
    ) -> None:
        self.me, self.voters, self.log, self.settings = me, voters, log, settings
        latest = log.latest_snapshot
        self.high_watermark = log.start_offset if latest is None else max(log.start_offset, latest.offset)
        self.leadership: Leadership | None = None
        self.ballot: Ballot | None = None
        self.fetched = False
        self.download: Download | None = None
        self._downloads = 0
        self.to_notify: set[int] = set()
        self.successors: tuple[ReplicaKey, ...] = ()
        self.outbox = Outbox()
        self.requests = Requests(settings.request_timeout_ms, settings.retry_backoff_ms)
        self._chance = chance
        self._leaders_high_watermark = -1
        self.election = election if election.epoch >= log.last_epoch else Election(epoch=log.last_epoch)
        self.role = role_at_start(self.election, me, votes=self.votes)
        self.deadline_ms = now_ms + self.timeout_ms()
        self._begin_role()

    @property
    def votes(self) -> bool:
        """Whether this node is a voter, not an observer."""
        return self.voters.has(self.me)

    # Moves

    def move(self, event: Event, now_ms: int, election: Election | None = None) -> None:
        """Apply an event's transition.

        A new election is on disk before messages that depend on it.
        """
        was, move = self.role, TRANSITIONS.after(self.role, event)
        if election is not None and election != self.election:
            assert move.saves, f"{event.name} has nothing to save"
            self.election = election
            self.outbox.save(election)
        if self.leadership is not None:
            self._stop_leading()
        waits_on = move.role is Role.UNATTACHED and was in _WAITS_ON and event is not Event.VOTED and not self._has_lost
        self.role = move.role
        if not waits_on:
            self.deadline_ms = now_ms + self.timeout_ms()
        self._begin_role()

    def timeout_ms(self) -> int:
        if self.role is Role.LEADER or not self.votes:
            return NEVER_MS
        if self.role is Role.FOLLOWER:
            return self.settings.fetch_timeout_ms
        if len(self.voters) == 1:
            return 0
        return self.settings.election_timeout_ms + self._chance.randrange(self.settings.election_timeout_ms)

    def seen(self, epoch: int, leader_id: int, now_ms: int) -> bool:
        """Handle an epoch from the current on; return whether it is consistent."""
        if leader_id == self.me.id:
            return self.role is Role.LEADER and epoch == self.election.epoch
        if epoch > self.election.epoch and leader_id == NOBODY:
            self.move(Event.EPOCH_SEEN, now_ms, self.election.in_epoch(epoch))
        elif epoch > self.election.epoch or (leader_id != NOBODY and self.election.leader_id == NOBODY):
            self.move(Event.LEADER_SEEN, now_ms, self.election.with_leader(leader_id, epoch))
        return leader_id in {NOBODY, self.election.leader_id}

    def leader_is_gone(self, now_ms: int) -> None:
        """Stand soon, and grant pre-votes: the leader's process refuses connections, or was restarted.

        A wrong guess costs a pre-vote, which the voters that still fetch deny.
        """
        if self.role is Role.FOLLOWER and self.votes:
            self.fetched = False
            spread_ms = max(1, self.settings.election_timeout_ms // _GONE_SPREAD)
            self.deadline_ms = min(self.deadline_ms, now_ms + self._chance.randrange(spread_ms))

    def vote_for(self, candidate: ReplicaKey, now_ms: int) -> None:
        """Grant the vote of this epoch, once."""
        if self.election.voted is None:
            self.move(Event.VOTED, now_ms, self.election.voting_for(candidate))

    def stand(self, now_ms: int) -> None:
        """Become a candidate after a won pre-vote: vote for this node."""
        self.move(Event.WOULD_WIN, now_ms, self.election.in_epoch(self.election.epoch + 1).voting_for(self.me))

    def give_up_standing(self, now_ms: int) -> None:
        remembered = self.election.leader_id != NOBODY
        self.move(Event.LEADER_REMEMBERED if remembered else Event.TIMED_OUT, now_ms)

    def lead(self, granting: set[int], now_ms: int) -> None:
        """Become leader and append a LeaderChange record.

        Earlier records can be committed only with it.
        """
        self.move(Event.ELECTED, now_ms, self.election.with_leader(self.me.id, self.election.epoch))
        self.leadership = Leadership(
            me=self.me,
            voters=self.voters,
            epoch_start_offset=self.log.end_offset,
            fetch_timeout_ms=self.settings.fetch_timeout_ms,
            now_ms=now_ms,
        )
        self.append(leader_change(self.me.id, self.voters.ids, sorted(granting), now_ms))

    def resign(self, now_ms: int) -> None:
        assert self.leadership is not None, f"a {self.role.name} node cannot resign"
        by_offset = self.leadership.followers.by_offset()
        self.successors = tuple(key for node_id in by_offset if (key := self.voters.key(node_id)) is not None)
        self.move(Event.RESIGNED, now_ms)

    @property
    def _has_lost(self) -> bool:
        return self.ballot is not None and self.ballot.is_lost

    def _begin_role(self) -> None:
        self.requests.forget()
        self.fetched = False
        self.download = None
        self._leaders_high_watermark = -1
        standing = self.role in {Role.PROSPECTIVE, Role.CANDIDATE}
        self.ballot = Ballot(voters=self.voters.ids, granted={self.me.id}) if standing else None
        resigned = self.role is Role.RESIGNED
        self.to_notify = {voter for voter in self.voters.ids if voter != self.me.id} if resigned else set()

    def _stop_leading(self) -> None:
        assert self.leadership is not None
        leadership, self.leadership = self.leadership, None
        self.outbox.discard(leadership.undecided())
        self.outbox.replace_reads(self._not_leading)
        for fetch in leadership.waiting.values():
            answer = self.fetch_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.outbox.send(Reply(waiter=fetch.request.waiter, body=answer))

    def _not_leading(self, reply: Reply) -> QuorumResponse:
        if isinstance(reply.read, ReadSnapshot):
            return snapshot_error(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.election)
        return self.fetch_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def fetch_error(self, error: ErrorCode) -> FetchResponse:
        return wire.fetch_response(error, self.election, log_start_offset=self.log.start_offset)

    # The log

    def append(self, batch: Buffer, waiter: Waiter = None) -> Proposal:
        """Append a leader's batch; offset and epoch are written into a copy."""
        assert self.leadership is not None, f"a {self.role.name} node puts nothing of its own into the log"
        stamped = bytearray(batch)
        first_offset, epoch = self.log.end_offset, self.election.epoch
        assign_offset(stamped, base_offset=first_offset, leader_epoch=epoch)
        next_offset = read_header(stamped).next_offset
        self.log.appended(epoch, first_offset, next_offset)
        self.outbox.append(LogWrite(batches=(stamped,)))
        self.leadership.has_news = True
        return Proposal(epoch=epoch, first_offset=first_offset, last_offset=next_offset - 1, waiter=waiter)

    def withdraw(self, offset: int) -> None:
        assert self.leadership is not None, f"a {self.role.name} node has proposed nothing"
        assert offset > max(self.leadership.epoch_start_offset, self.log.flushed_offset - 1), f"{offset} was written"
        self.log.truncated(offset)
        self.outbox.append(LogWrite(truncate_to=offset))
        self.outbox.discard(self.leadership.withdraw(offset))

    def append_fetched(self, records: Buffer) -> bool:
        """Append the leader's batches; return whether all were intact and in order."""
        batches: list[Buffer] = []
        in_order = True
        try:
            for header, batch in iter_batches(records):
                verify_crc(batch, header)
                in_order = header.base_offset == self.log.end_offset and (
                    self.log.last_epoch <= header.partition_leader_epoch <= self.election.epoch
                )
                if not in_order:
                    break
                self.log.appended(header.partition_leader_epoch, header.base_offset, header.next_offset)
                batches.append(batch)
        except CorruptBatch:
            in_order = False
        if batches:
            self.outbox.append(LogWrite(batches=tuple(batches)))
        return in_order

    def truncate(self, leader: OffsetAndEpoch) -> bool:
        """Truncate where the log diverges from the leader's; return whether it did.

        `leader`: the end offset of that epoch in the leader's log. CommittedRecordsLost: the divergence is below the
        high watermark.
        """
        offset = self.log.truncation_offset(leader)
        if offset < self.high_watermark:
            raise CommittedRecordsLost(
                f"node {self.election.leader_id}, which leads epoch {self.election.epoch} of the metadata log, has other records than this node "
                f"from offset {offset} on, and those below {self.high_watermark} were committed: stop it, and start voters that have them"
            )
        if offset >= self.log.end_offset:
            return False
        self.log.truncated(offset)
        self.outbox.append(LogWrite(truncate_to=offset))
        return True

    # Snapshots

    def begin_download(self, snapshot: SnapshotId) -> bool:
        """Fetch a snapshot that the leader names; return whether it is of use.

        CommittedRecordsLost: it ends below the high watermark.
        """
        if snapshot.offset < self.high_watermark:
            raise CommittedRecordsLost(
                f"node {self.election.leader_id}, which leads epoch {self.election.epoch} of the metadata log, offers a snapshot up to "
                f"offset {snapshot.offset}, and records below {self.high_watermark} were committed: stop it, and start voters that have them"
            )
        if (snapshot.epoch, snapshot.offset) <= (self.log.last_epoch, self.log.end_offset):
            return False
        if self.download is None or self.download.snapshot != snapshot:
            self._downloads += 1
            self.download = Download(snapshot=snapshot, number=self._downloads)
        return True

    def received(self, part: PartitionSnapshot) -> bool:
        """Write the next part of the download; return whether it is that."""
        written = None if self.download is None else self.download.received(part)
        if written is None:
            return False
        self.outbox.append(LogWrite(part=written))
        return True

    def downloaded(self, message: Downloaded) -> bool:
        """Replace the log by a checked download; False if it is damaged.

        A download that was given up meanwhile is ignored.
        """
        download = self.download
        if download is None or (download.snapshot, download.number) != (message.snapshot, message.number):
            return True
        self.download = None
        if not message.intact:
            return False
        self.log.restarted(download.snapshot, download.size)
        self.outbox.append(LogWrite(install=download.snapshot))
        return True

    def persisted(self, number: int) -> None:
        flushed_offset = self.outbox.flushed_by(number)
        if flushed_offset is not None:
            self.log.flushed(flushed_offset)
            self.commit()

    def commit(self) -> None:
        """Advance the high watermark.

        A leader's by its voters, a follower's by its leader, its snapshots and its own flushed offset.
        """
        if self.leadership is None:
            latest = self.log.latest_snapshot
            known = max(self._leaders_high_watermark, -1 if latest is None else latest.offset)
            self._raise(min(known, self.log.flushed_offset), ())
        elif self.leadership.advance(self.log):
            assert self.leadership.high_watermark is not None
            self._raise(self.leadership.high_watermark, self.leadership.decided())

    def raise_leaders_high_watermark(self, high_watermark: int) -> None:
        """Record the leader's high watermark, -1 if it has none yet."""
        self._leaders_high_watermark = max(self._leaders_high_watermark, high_watermark)
        self.commit()

    def _raise(self, offset: int, committed: tuple[Proposal, ...]) -> None:
        if offset > self.high_watermark or committed:
            self.high_watermark = max(self.high_watermark, offset)
            self.outbox.apply(self.high_watermark, committed)
