"""Progress of the other replicas, as their fetches show it.

Here: one replica's progress, a leader's table for its epoch.
Not here: the high watermark (`votes`). Times are of the leader's monotonic clock, in ms.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from busway_bus.kernel.limits import OBSERVER_SESSION_MS, OBSERVERS_MAX
from busway_bus.quorum.voters import ReplicaKey, VoterSet

UNKNOWN = -1


@dataclass(slots=True, kw_only=True)
class Progress:
    """One replica's progress; -1 for unknown.

    Attributes:
        end_offset: offset of the last fetch: all before it is on its disk, since voters flush before they fetch (KIP-595).
        fetched_ms: time of that fetch.
        caught_up_ms: last time at which it had the leader's whole log (KIP-836).
        leader_end_offset: end of the leader's log at the last fetch.
    """

    end_offset: int = UNKNOWN
    fetched_ms: int = UNKNOWN
    caught_up_ms: int = UNKNOWN
    leader_end_offset: int = UNKNOWN

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Record a fetch from `offset`; earlier records equal the leader's."""
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif self.leader_end_offset > 0 and offset >= self.leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.leader_end_offset = leader_end_offset
        self.fetched_ms = max(self.fetched_ms, now_ms)
        self.end_offset = offset


class Followers:
    """The other voters, and observers that fetch, in a leader's epoch."""

    __slots__ = ("_voter_set", "observers", "voters")

    def __init__(self, voters: VoterSet, leader_id: int) -> None:
        self._voter_set = voters
        self.voters = {node_id: Progress() for node_id in voters.ids if node_id != leader_id}
        self.observers: dict[ReplicaKey, Progress] = {}

    def fetched(self, replica: ReplicaKey, offset: int, leader_end_offset: int, now_ms: int) -> bool:
        """Record a fetch; return whether the replica votes.

        Observers beyond OBSERVERS_MAX are served, but not tracked.
        """
        if replica.id in self.voters and self._voter_set.has(replica):
            self.voters[replica.id].fetched(offset, leader_end_offset, now_ms)
            return True
        self._forget_observers(now_ms)
        if replica in self.observers or len(self.observers) < OBSERVERS_MAX:
            self.observers.setdefault(replica, Progress()).fetched(offset, leader_end_offset, now_ms)
        return False

    def fetched_snapshot(self, replica: ReplicaKey, now_ms: int) -> bool:
        """Record a fetch of a snapshot, which shows no progress of the log; return whether the replica votes."""
        votes = replica.id in self.voters and self._voter_set.has(replica)
        if votes:
            progress = self.voters[replica.id]
            progress.fetched_ms = max(progress.fetched_ms, now_ms)
        return votes

    def end_offsets(self) -> Iterable[int]:
        return (progress.end_offset for progress in self.voters.values())

    def by_offset(self) -> tuple[int, ...]:
        return tuple(sorted(self.voters, key=lambda node_id: (-self.voters[node_id].end_offset, node_id)))

    def silent(self, now_ms: int, for_ms: int) -> tuple[int, ...]:
        """Return other voters without a fetch for this long, or at all."""
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
