"""What the tests of one core share: a core whose disk is as fast as it writes, on a clock that moves when asked."""

from random import Random
from typing import Any
from uuid import UUID

from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum.core import Quorum
from busway_bus.quorum.log_view import LogView
from busway_bus.quorum.ready import Answer, LogWrite, Persisted, Proposal, Ready, Reply, Request, Send
from busway_bus.quorum.settings import QuorumSettings
from busway_bus.quorum.snapshot_wire import snapshot_request
from busway_bus.quorum.states import Election, Role
from busway_bus.quorum.voters import ReplicaKey, VoterSet
from busway_bus.quorum.wire import (
    begin_request,
    begin_response,
    end_request,
    fetch_request,
    fetch_response,
    vote_request,
    vote_response,
)
from busway_protocol.errors import ErrorCode
from busway_protocol.records.builder import BatchBuilder

ME, SECOND, THIRD = ReplicaKey(1, UUID(int=101)), ReplicaKey(2, UUID(int=102)), ReplicaKey(3, UUID(int=103))
SETTINGS = QuorumSettings()
ELECTION_MS = 2 * SETTINGS.election_timeout_ms
"""After so long an election has timed out, whatever chance says."""


def batch(content: bytes = b"x", *, offset: int = 0, epoch: int = -1) -> bytes:
    """A batch of one record."""
    builder = BatchBuilder()
    builder.append(0, None, content)
    return builder.build(offset, epoch)


def log(*epochs: int) -> LogView:
    """A log on disk with a batch of one record for each of these epochs."""
    view = LogView()
    for offset, epoch in enumerate(epochs):
        view.appended(epoch, offset, offset + 1)
    view.flushed(view.end_offset)
    return view


class Bench:
    """A core, and what it has saved, written, sent and answered."""

    def __init__(
        self,
        view: LogView | None = None,
        election: Election | None = None,
        voters: tuple[int, ...] = (1, 2, 3),
        *,
        disk_works: bool = True,
    ) -> None:
        self.now_ms = 1_000_000
        self.disk_works = disk_works
        self.saved: list[Election] = []
        self.writes: list[LogWrite] = []
        self.sent: list[Send] = []
        self.replies: list[Reply] = []
        self.applied: list[int] = []
        self.committed: list[Proposal] = []
        self.discarded: list[Proposal] = []
        self.core = Quorum(
            me=ME,
            voters=VoterSet.fixed(voters),
            election=election or Election(),
            log=view or LogView(),
            chance=Random(0),
            now_ms=self.now_ms,
            cluster_id="here",
        )
        self.do(self.core.tick(self.now_ms))

    def do(self, ready: Ready) -> None:
        """Carry it out."""
        self.saved += [] if ready.save is None else [ready.save]
        self.writes += ready.append
        self.sent += [message for message in ready.send if isinstance(message, Send)]
        self.replies += [message for message in ready.send if isinstance(message, Reply)]
        self.applied += [] if ready.apply is None else [ready.apply]
        self.committed += ready.committed
        self.discarded += ready.discarded
        if ready.writes and self.disk_works:
            self.do(self.core.step(Persisted(number=ready.number), self.now_ms))

    def wait(self, ms: int) -> None:
        """Let time pass, in steps that no timeout is shorter than."""
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.now_ms = min(self.now_ms + 10, end_ms)
            self.do(self.core.tick(self.now_ms))

    def ask(self, body: Any, waiter: Any = "somebody") -> Any:
        """Send a request; answers the first partition of the answer, None while there is none."""
        before = len(self.replies)
        self.do(self.core.step(Request(waiter=waiter, body=body), self.now_ms))
        return self.replies[-1].body.topics[0].partitions[0] if len(self.replies) > before else None

    def fetch(self, who: ReplicaKey, view: LogView, epoch: int, **values: Any) -> Any:
        """Another node fetches; answers the partition of the answer, None while it waits."""
        values = {"high_watermark": -1, "max_wait_ms": 0, "max_bytes": 1_000, **values}
        body = fetch_request("here", who, epoch, view, **values)
        before = len(self.replies)
        self.do(self.core.step(Request(waiter=who, body=body), self.now_ms))
        return self.replies[-1].body.responses[0].partitions[0] if len(self.replies) > before else None

    def fetch_snapshot(self, snapshot: SnapshotId, position: int = 0, **values: Any) -> Any:
        """Another node fetches a snapshot; answers the partition of the answer."""
        values = {"who": SECOND, "epoch": self.core.epoch, "max_bytes": 1_000, **values}
        who, epoch, max_bytes = values["who"], values["epoch"], values["max_bytes"]
        return self.ask(snapshot_request("here", who, epoch, snapshot, position=position, max_bytes=max_bytes))

    def ask_for_vote(self, who: ReplicaKey, epoch: int, view: LogView, *, pre_vote: bool = False) -> Any:
        """Another node wants this one's vote."""
        return self.ask(vote_request("here", ME, who, epoch, view, pre_vote=pre_vote))

    def tell_of_leader(self, who: ReplicaKey, epoch: int) -> Any:
        """Another node says that it leads."""
        return self.ask(begin_request("here", ME, who.id, epoch))

    def tell_of_end(self, who: ReplicaKey, epoch: int, *preferred: ReplicaKey) -> Any:
        """Another node says that it leads no more."""
        return self.ask(end_request("here", who.id, epoch, preferred))

    def last_to(self, node_id: int) -> Send:
        """The newest request to a node."""
        return [send for send in self.sent if send.to == node_id][-1]

    def answer(self, node_id: int, body: Any) -> None:
        """A node answers the newest request to it."""
        self.do(self.core.step(Answer(correlation=self.last_to(node_id).correlation, body=body), self.now_ms))

    def answer_vote(self, node_id: int, *, granted: bool, election: Election | None = None) -> None:
        """A voter answers."""
        response_election = election or Election(epoch=self.core.epoch)
        self.answer(node_id, vote_response(ErrorCode.NONE, response_election, granted=granted))

    def answer_fetch(self, node_id: int, records: bytes = b"", **values: Any) -> None:
        """The leader answers a fetch."""
        election = Election(epoch=self.core.epoch, leader_id=node_id)
        body = fetch_response(ErrorCode.NONE, election, log_start_offset=0, **values)
        body.responses[0].partitions[0].records = records
        self.answer(node_id, body)

    def become(self, role: Role) -> None:
        """Bring the core into a role by what happens outside."""
        match role:
            case Role.FOLLOWER:
                self.tell_of_leader(SECOND, self.core.epoch + 1)
            case Role.PROSPECTIVE:
                self.wait(ELECTION_MS)
            case Role.CANDIDATE:
                self.become(Role.PROSPECTIVE)
                self.answer_vote(2, granted=True)
            case Role.LEADER:
                self.become(Role.CANDIDATE)
                self.answer_vote(2, granted=True)
            case Role.RESIGNED:
                self.become(Role.LEADER)
                self.do(self.core.resign(self.now_ms))
        assert self.core.role is role

    def propose(self, content: bytes = b"x") -> Proposal:
        """Put a batch into the log of this leader."""
        proposal, ready = self.core.propose(batch(content), self.now_ms, content)
        self.do(ready)
        return proposal

    def begun(self, epoch: int) -> Any:
        """What a voter says that has heard of this leader."""
        return begin_response(ErrorCode.NONE, Election(epoch=epoch, leader_id=ME.id))
