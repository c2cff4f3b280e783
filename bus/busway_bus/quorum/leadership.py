"""A leader's state in one epoch: followers, high watermark, proposals, waiting fetches.

Here: rules that need only these.
Not here: the log and the responses (`core`).
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from busway_bus.kernel.limits import OBSERVERS_MAX, PROPOSALS_MAX
from busway_bus.quorum.log_view import LogView
from busway_bus.quorum.progress import Followers
from busway_bus.quorum.ready import Proposal, Request, TooManyProposals
from busway_bus.quorum.voters import ReplicaKey, VoterSet
from busway_bus.quorum.votes import committed_offset, majority

CHECK_QUORUM_FACTOR: Final = 1.5
"""Fetch timeouts without a majority's fetches after which a leader resigns.

As in Kafka: by then its followers have started an election.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFetch:
    request: Request
    until_ms: int


class Leadership:
    """One node's leadership in one epoch.

    Attributes:
        epoch_start_offset: end of the log when the epoch began.
        high_watermark: None until a record of this epoch is on a majority. An earlier epoch's is not sent, so that it
            never seems to fall.
        waiting: held fetches, at most one for each replica.
        has_news: the log or the high watermark has advanced since the held fetches were answered.
        begin_ms: when BeginQuorumEpoch is next sent to voters that do not fetch.
        quorum_until_ms: deadline for fetches from a majority.
    """

    __slots__ = (
        "_me",
        "_proposals",
        "_recent",
        "_timeout_ms",
        "_voters",
        "begin_ms",
        "epoch_start_offset",
        "followers",
        "has_news",
        "high_watermark",
        "quorum_until_ms",
        "waiting",
    )

    def __init__(
        self, *, me: ReplicaKey, voters: VoterSet, epoch_start_offset: int, fetch_timeout_ms: int, now_ms: int
    ) -> None:
        self._me, self._voters, self._timeout_ms = me, voters, fetch_timeout_ms
        self.epoch_start_offset = epoch_start_offset
        self.followers = Followers(voters, me.id)
        self.high_watermark: int | None = None
        self.waiting: dict[ReplicaKey, WaitingFetch] = {}
        self.has_news = False
        self.begin_ms = now_ms
        self._proposals: deque[Proposal] = deque()
        self._recent: set[int] = set()
        self._quorum_seen(now_ms)

    # Fetching replicas

    def fetched(self, replica: ReplicaKey, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Record a fetch; the replica's records before `offset` equal this log."""
        if self.followers.fetched(replica, offset, leader_end_offset, now_ms):
            self._voter_seen(replica.id, now_ms)

    def fetched_snapshot(self, replica: ReplicaKey, now_ms: int) -> None:
        """Record a fetch of a snapshot; it counts towards the majority that a leader needs."""
        if self.followers.fetched_snapshot(replica, now_ms):
            self._voter_seen(replica.id, now_ms)

    def _voter_seen(self, node_id: int, now_ms: int) -> None:
        self._recent.add(node_id)
        if len(self._recent) >= majority(len(self._voters)) - 1:
            self._recent.clear()
            self._quorum_seen(now_ms)

    def has_lost_its_majority(self, now_ms: int) -> bool:
        return len(self._voters) > 1 and now_ms >= self.quorum_until_ms

    def voters_to_notify(self, now_ms: int) -> tuple[int, ...]:
        """Find voters that may not know this leader; empty until `begin_ms`."""
        if now_ms < self.begin_ms:
            return ()
        self.begin_ms = now_ms + self._timeout_ms // 2
        return self.followers.silent(now_ms, self._timeout_ms // 2)

    def _quorum_seen(self, now_ms: int) -> None:
        self.quorum_until_ms = now_ms + int(self._timeout_ms * CHECK_QUORUM_FACTOR)

    # Commits

    def advance(self, log: LogView) -> bool:
        """Advance the high watermark; this node's own share is its flushed offset."""
        offset = committed_offset((log.flushed_offset, *self.followers.end_offsets()), self.epoch_start_offset)
        if offset is None or (self.high_watermark is not None and offset <= self.high_watermark):
            return False
        self.high_watermark = offset
        self.has_news = True
        return True

    # Proposals

    def make_room(self) -> None:
        """Raise TooManyProposals if PROPOSALS_MAX proposals wait."""
        if len(self._proposals) >= PROPOSALS_MAX:
            raise TooManyProposals(
                f"{PROPOSALS_MAX} batches of the metadata log wait for a majority; try again when it is there"
            )

    def proposed(self, proposal: Proposal) -> None:
        self._proposals.append(proposal)

    def decided(self) -> tuple[Proposal, ...]:
        committed = []
        while (
            self._proposals and self.high_watermark is not None and self._proposals[0].last_offset < self.high_watermark
        ):
            committed.append(self._proposals.popleft())
        return tuple(committed)

    def withdraw(self, offset: int) -> tuple[Proposal, ...]:
        kept = [proposal for proposal in self._proposals if proposal.first_offset < offset]
        withdrawn = tuple(self._proposals)[len(kept) :]
        self._proposals = deque(kept)
        return withdrawn

    def undecided(self) -> tuple[Proposal, ...]:
        return tuple(self._proposals)

    # Held fetches

    def may_wait(self, replica: ReplicaKey) -> bool:
        """Whether a fetch may be held: only a replica's, and at most OBSERVERS_MAX."""
        return replica.id >= 0 and (replica in self.waiting or len(self.waiting) < OBSERVERS_MAX)

    def wait(self, replica: ReplicaKey, fetch: WaitingFetch) -> WaitingFetch | None:
        """Hold a fetch; return the replica's previous, whose caller no longer waits."""
        before = self.waiting.pop(replica, None)
        self.waiting[replica] = fetch
        return before

    def due_fetches(self, now_ms: int) -> tuple[WaitingFetch, ...]:
        """Take held fetches: all if there is news, else those timed out."""
        if not self.waiting:
            self.has_news = False
            return ()
        due = {replica: fetch for replica, fetch in self.waiting.items() if self.has_news or fetch.until_ms <= now_ms}
        self.has_news = False
        for replica in due:
            del self.waiting[replica]
        return tuple(due.values())

    def wake_ms(self) -> int:
        """Return when this node must act by time alone."""
        times = [self.begin_ms, *(fetch.until_ms for fetch in self.waiting.values())]
        return min(times) if len(self._voters) == 1 else min(self.quorum_until_ms, *times)
