"""How far the other replicas have copied the leader's log, as their fetches tell.

What lives here: one replica's progress, and the table of them that a leader keeps for its epoch. What does not: what follows for the high
watermark (`votes`). Times are those of the leader's monotonic clock, in ms.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from busway_bus.kernel.limits import OBSERVER_SESSION_MS, OBSERVERS_MAX
from busway_bus.quorum.voters import ReplicaKey, VoterSet

UNKNOWN = -1


@dataclass(slots=True, kw_only=True)
class Progress:
    """One replica.

    Attributes:
        end_offset: from where it fetched last: all before it is on its disk, since voters flush before they fetch (KIP-595).
        fetched_ms: when it did so.
        caught_up_ms: when it had last all that the leader had (KIP-836).
        leader_end_offset: what the leader had when it fetched last.
        Each is -1 while nothing is known.
    """

    end_offset: int = UNKNOWN
    fetched_ms: int = UNKNOWN
    caught_up_ms: int = UNKNOWN
    leader_end_offset: int = UNKNOWN

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """It asks for what comes from `offset` on, and what is before equals the leader's log."""
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif self.leader_end_offset > 0 and offset >= self.leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.leader_end_offset = leader_end_offset
        self.fetched_ms = max(self.fetched_ms, now_ms)
        self.end_offset = offset


class Followers:
    """The replicas that copy a leader's log in its epoch: the other voters, and observers that fetch."""

    __slots__ = ("_voter_set", "observers", "voters")

    def __init__(self, voters: VoterSet, leader_id: int) -> None:
        self._voter_set = voters
        self.voters = {node_id: Progress() for node_id in voters.ids if node_id != leader_id}
        self.observers: dict[ReplicaKey, Progress] = {}

    def fetched(self, replica: ReplicaKey, offset: int, leader_end_offset: int, now_ms: int) -> bool:
        """A replica has fetched; answers whether it is a voter. Observers beyond OBSERVERS_MAX are served, and not counted."""
        if replica.id in self.voters and self._voter_set.has(replica):
            self.voters[replica.id].fetched(offset, leader_end_offset, now_ms)
            return True
        self._forget_observers(now_ms)
        if replica in self.observers or len(self.observers) < OBSERVERS_MAX:
            self.observers.setdefault(replica, Progress()).fetched(offset, leader_end_offset, now_ms)
        return False

    def end_offsets(self) -> Iterable[int]:
        """The ends of the other voters' logs."""
        return (progress.end_offset for progress in self.voters.values())

    def by_offset(self) -> tuple[int, ...]:
        """The other voters, those that have most of the log first."""
        return tuple(sorted(self.voters, key=lambda node_id: (-self.voters[node_id].end_offset, node_id)))

    def silent(self, now_ms: int, for_ms: int) -> tuple[int, ...]:
        """Other voters that have not fetched for so long, or not at all."""
        return tuple(
            node_id
            for node_id, progress in self.voters.items()
            if progress.fetched_ms == UNKNOWN or now_ms - progress.fetched_ms >= for_ms
        )

    def _forget_observers(self, now_ms: int) -> None:
        for replica in [
            replica
            for replica, progress in self.observers.items()
            if now_ms - progress.fetched_ms >= OBSERVER_SESSION_MS
        ]:
            del self.observers[replica]
