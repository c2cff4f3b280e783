"""What a leader keeps for its epoch: followers, the high watermark, proposals, fetches that wait.

What lives here: rules that need nothing but these. What does not: the log and the answers (`core`). All of it is gone when the epoch is.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from busway_bus.kernel.limits import OBSERVERS_MAX, PROPOSALS_MAX
from busway_bus.quorum.log_view import LogView
from busway_bus.quorum.progress import Followers
from busway_bus.quorum.ready import Proposal, Request, TooMuchUndecided
from busway_bus.quorum.voters import ReplicaKey, VoterSet
from busway_bus.quorum.votes import committed_offset, majority

CHECK_QUORUM_FACTOR: Final = 1.5
"""Fetch timeouts without a majority's fetches after which a leader resigns, as in Kafka: its followers have looked for another by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFetch:
    """A fetch of a replica that has all there is."""

    request: Request
    until_ms: int


class Leadership:
    """One node's leadership in one epoch.

    Attributes:
        epoch_start_offset: where the log ended when it began.
        followers: how far the others are.
        high_watermark: None until a record of this epoch is on a majority; the one of an earlier epoch is not told, so that it never seems
            to fall.
        waiting: fetches by who waits, one each.
        has_news: whether there is more in the log, or committed, than they were told.
        begin_ms: when voters that do not fetch are told next that there is a leader.
        quorum_until_ms: when a majority has to have fetched.
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

    # Who fetches

    def fetched(self, replica: ReplicaKey, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """A replica fetches from `offset` on, and what it has before equals this log."""
        if self.followers.fetched(replica, offset, leader_end_offset, now_ms):
            self._recent.add(replica.id)
            if len(self._recent) >= majority(len(self._voters)) - 1:
                self._recent.clear()
                self._quorum_seen(now_ms)

    def has_lost_its_majority(self, now_ms: int) -> bool:
        """Whether a majority has not fetched for too long; one that votes alone is its own."""
        return len(self._voters) > 1 and now_ms >= self.quorum_until_ms

    def voters_to_tell(self, now_ms: int) -> tuple[int, ...]:
        """Voters that may not know of this leader; nobody while it is not time to look."""
        if now_ms < self.begin_ms:
            return ()
        self.begin_ms = now_ms + self._timeout_ms // 2
        return self.followers.silent(now_ms, self._timeout_ms // 2)

    def _quorum_seen(self, now_ms: int) -> None:
        self.quorum_until_ms = now_ms + int(self._timeout_ms * CHECK_QUORUM_FACTOR)

    # What is committed

    def advance(self, log: LogView) -> bool:
        """Look whether more is on a majority; what counts of this node is what it has flushed."""
        offset = committed_offset((log.flushed_offset, *self.followers.end_offsets()), self.epoch_start_offset)
        if offset is None or (self.high_watermark is not None and offset <= self.high_watermark):
            return False
        self.high_watermark = offset
        self.has_news = True
        return True

    # What was proposed

    def make_room(self) -> None:
        """Look whether one more may wait.

        Raises:
            TooMuchUndecided: PROPOSALS_MAX wait.
        """
        if len(self._proposals) >= PROPOSALS_MAX:
            raise TooMuchUndecided(
                f"{PROPOSALS_MAX} batches of the metadata log wait for a majority; try again when it is there"
            )

    def proposed(self, proposal: Proposal) -> None:
        """It is in the log."""
        self._proposals.append(proposal)

    def decided(self) -> tuple[Proposal, ...]:
        """Proposals that are committed, in their order, once each."""
        found = []
        while (
            self._proposals and self.high_watermark is not None and self._proposals[0].last_offset < self.high_watermark
        ):
            found.append(self._proposals.popleft())
        return tuple(found)

    def withdraw(self, offset: int) -> tuple[Proposal, ...]:
        """Forget those from `offset` on; answers them."""
        kept = [proposal for proposal in self._proposals if proposal.first_offset < offset]
        withdrawn = tuple(self._proposals)[len(kept) :]
        self._proposals = deque(kept)
        return withdrawn

    def undecided(self) -> tuple[Proposal, ...]:
        """The others."""
        return tuple(self._proposals)

    # Who waits

    def may_wait(self, replica: ReplicaKey) -> bool:
        """Whether a fetch may wait: a replica's, and not those of ever more nodes."""
        return replica.id >= 0 and (replica in self.waiting or len(self.waiting) < OBSERVERS_MAX)

    def wait(self, replica: ReplicaKey, fetch: WaitingFetch) -> WaitingFetch | None:
        """Have a fetch wait; answers the one of the same replica that has waited until now, for which nobody does any more."""
        before = self.waiting.pop(replica, None)
        self.waiting[replica] = fetch
        return before

    def due_fetches(self, now_ms: int) -> tuple[WaitingFetch, ...]:
        """Those that are to be answered: all where there is news, and those whose time is over. They wait no more."""
        if not self.waiting:
            self.has_news = False
            return ()
        due = {replica: fetch for replica, fetch in self.waiting.items() if self.has_news or fetch.until_ms <= now_ms}
        self.has_news = False
        for replica in due:
            del self.waiting[replica]
        return tuple(due.values())

    def wake_ms(self) -> int:
        """When something is to be done by time alone."""
        times = [self.begin_ms, *(fetch.until_ms for fetch in self.waiting.values())]
        return min(times) if len(self._voters) == 1 else min(self.quorum_until_ms, *times)
