"""Rules for granting votes and pre-votes (KIP-595, KIP-996).

Here: the rules, by role.
Not here: the response (`core`).
"""

from collections.abc import Sequence

from busway_bus.quorum.states import NOBODY, Election, Role
from busway_bus.quorum.voters import ReplicaKey
from busway_protocol.types import ZERO_UUID


def would_vote(role: Role, *, covers: bool, fetched: bool) -> bool:
    """Decide on a pre-vote, which is not binding.

    Args:
        covers: the candidate's log is at least as up to date.
        fetched: this node follows a leader that has answered it: an election would only disturb.
    """
    if role is Role.LEADER or (role is Role.FOLLOWER and fetched):
        return False
    return covers


def may_vote(role: Role, election: Election, candidate: ReplicaKey, *, covers: bool) -> bool:
    """Decide on a vote: one candidate in an epoch, none if its leader is known."""
    if role not in {Role.UNATTACHED, Role.PROSPECTIVE}:
        return False
    if election.voted is not None:
        return election.voted.id == candidate.id and election.voted.directory_id in {ZERO_UUID, candidate.directory_id}
    return election.leader_id == NOBODY and covers


def successor_backoff_ms(me: ReplicaKey, preferred: Sequence[ReplicaKey], backoff_ms_max: int) -> int:
    """Return the backoff before an election after a resignation.

    The first preferred voter does not wait, each further voter waits twice as long, up to `backoff_ms_max`.
    """
    is_me = (voter.id == me.id and voter.directory_id in {ZERO_UUID, me.directory_id} for voter in preferred)
    position = next((number for number, matches in enumerate(is_me) if matches), None)
    if position is None:
        return backoff_ms_max
    if position == 0:
        return 0
    return min(backoff_ms_max, (backoff_ms_max >> (len(preferred) - 1)) << (position - 1))
