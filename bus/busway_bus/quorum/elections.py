"""Whether a node gives its vote, or would (KIP-595, KIP-996).

What lives here: the rules, by role. What does not: the answer (`core`).
"""

from collections.abc import Sequence

from busway_bus.quorum.states import NOBODY, Election, Role
from busway_bus.quorum.voters import ReplicaKey
from busway_protocol.types import ZERO_UUID


def would_vote(role: Role, *, covers: bool, fetched: bool) -> bool:
    """The answer to a pre-vote, which binds nobody.

    Args:
        covers: whether the log of the one that asks has at least what this one has.
        fetched: whether this node follows a leader that has answered it: then an election would only disturb.
    """
    if role is Role.LEADER or (role is Role.FOLLOWER and fetched):
        return False
    return covers


def may_vote(role: Role, election: Election, candidate: ReplicaKey, *, covers: bool) -> bool:
    """Whether the vote of this epoch is given to a candidate: to one alone, and to none where a leader is known."""
    if role not in {Role.UNATTACHED, Role.PROSPECTIVE}:
        return False
    if election.voted is not None:
        return election.voted.id == candidate.id and election.voted.directory_id in {ZERO_UUID, candidate.directory_id}
    return election.leader_id == NOBODY and covers


def successor_backoff_ms(me: ReplicaKey, preferred: Sequence[ReplicaKey], backoff_ms_max: int) -> int:
    """How long to wait for an election after the leader has resigned: the voter that has most of the log does not wait, each further one
    waits twice as long as the one before it, up to the bound."""
    names_me = (one.id == me.id and one.directory_id in {ZERO_UUID, me.directory_id} for one in preferred)
    position = next((number for number, found in enumerate(names_me) if found), None)
    if position is None:
        return backoff_ms_max
    if position == 0:
        return 0
    return min(backoff_ms_max, (backoff_ms_max >> (len(preferred) - 1)) << (position - 1))
