"""Roles of a quorum node, their transition table, and the persistent election.

Here: roles, events, the table, the election as in `quorum-state` (KIP-595, KIP-853, KIP-996).
Not here: causes of the events (`core`).
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple
from uuid import UUID

from busway_bus.kernel.transitions import Table
from busway_bus.quorum.voters import ReplicaKey
from busway_protocol.types import ZERO_UUID

NOBODY: Final = -1


class Role(Enum):
    """The role of a node in its epoch.

    UNATTACHED: knows no leader, asks voters for one; a voter may have granted its vote. Exits: an epoch, a leader, time.
    PROSPECTIVE: asks for pre-votes without raising its epoch. Exits: their responses, an epoch, a leader, time.
    CANDIDATE: has voted for itself in a new epoch and asks for votes. Exits: as of PROSPECTIVE.
    FOLLOWER: copies a leader's log. Exits: an epoch, a leader of a later one, time without a response.
    LEADER: appends records and serves fetches. Exits: an epoch, a leader of a later one, no fetches from a majority, the
    end of the node.
    RESIGNED: has led this epoch, and will not again; gives no vote in it. Exits: an epoch, a leader of a later one, time.
    """

    UNATTACHED = auto()
    PROSPECTIVE = auto()
    CANDIDATE = auto()
    FOLLOWER = auto()
    LEADER = auto()
    RESIGNED = auto()


class Event(Enum):
    EPOCH_SEEN = auto()
    """A later epoch was seen, without a leader."""
    LEADER_SEEN = auto()
    """Another node leads a later epoch, or this without known leader."""
    VOTED = auto()
    TIMED_OUT = auto()
    """The role's time-out expired; a prospective node knows no leader."""
    LEADER_REMEMBERED = auto()
    """A pre-vote was lost or timed out; follow the known leader again."""
    WOULD_WIN = auto()
    ELECTED = auto()
    RESIGNED = auto()
    """A leader stops: a majority does not fetch, or the node shuts down."""


class Move(NamedTuple):
    """The role after an event.

    `saves`: the election must be on disk before messages that depend on it.
    """

    role: Role
    saves: bool


_ALL: Final = tuple(Role)
TRANSITIONS: Final[Table[Role, Event, Move]] = Table(
    "a node of the quorum in the role",
    {
        **{(role, Event.EPOCH_SEEN): Move(Role.UNATTACHED, saves=True) for role in _ALL},
        **{(role, Event.LEADER_SEEN): Move(Role.FOLLOWER, saves=True) for role in _ALL},
        (Role.UNATTACHED, Event.VOTED): Move(Role.UNATTACHED, saves=True),
        (Role.PROSPECTIVE, Event.VOTED): Move(Role.PROSPECTIVE, saves=True),
        # Asking changes nothing that a restart would have to know.
        (Role.UNATTACHED, Event.TIMED_OUT): Move(Role.PROSPECTIVE, saves=False),
        (Role.FOLLOWER, Event.TIMED_OUT): Move(Role.PROSPECTIVE, saves=False),
        (Role.CANDIDATE, Event.TIMED_OUT): Move(Role.PROSPECTIVE, saves=False),
        (Role.PROSPECTIVE, Event.TIMED_OUT): Move(Role.UNATTACHED, saves=True),
        (Role.PROSPECTIVE, Event.LEADER_REMEMBERED): Move(Role.FOLLOWER, saves=True),
        (Role.PROSPECTIVE, Event.WOULD_WIN): Move(Role.CANDIDATE, saves=True),
        (Role.CANDIDATE, Event.ELECTED): Move(Role.LEADER, saves=True),
        # A former leader restarts as RESIGNED, since the file names it as leader.
        (Role.LEADER, Event.RESIGNED): Move(Role.RESIGNED, saves=False),
        # It cannot follow in an epoch that names it as leader, so it raises the epoch.
        (Role.RESIGNED, Event.TIMED_OUT): Move(Role.UNATTACHED, saves=True),
    },
)
"""(role, event) → role. Other pairs do not occur: callers check the role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """The election state of a node's epoch, the content of `quorum-state`.

    It is on disk before a response depends on it.

    Attributes:
        epoch: the highest seen.
        leader_id: -1 if unknown.
        voted_id, voted_directory_id: the replica with this node's vote, else -1 and zeros.
    """

    epoch: int = 0
    leader_id: int = NOBODY
    voted_id: int = NOBODY
    voted_directory_id: UUID = ZERO_UUID

    @property
    def voted(self) -> ReplicaKey | None:
        return None if self.voted_id == NOBODY else ReplicaKey(self.voted_id, self.voted_directory_id)

    def in_epoch(self, epoch: int) -> "Election":
        assert epoch > self.epoch, f"epoch {epoch} does not follow on {self.epoch}"
        return Election(epoch=epoch)

    def voting_for(self, candidate: ReplicaKey) -> "Election":
        assert self.voted is None or self.voted == candidate, f"the vote of epoch {self.epoch} is given already"
        return Election(
            epoch=self.epoch,
            leader_id=self.leader_id,
            voted_id=candidate.id,
            voted_directory_id=candidate.directory_id,
        )

    def with_leader(self, leader_id: int, epoch: int) -> "Election":
        """Return the election with a leader; keep this epoch's vote."""
        assert epoch >= self.epoch, f"epoch {epoch} is before {self.epoch}"
        if epoch > self.epoch:
            return Election(epoch=epoch, leader_id=leader_id)
        return Election(
            epoch=epoch,
            leader_id=leader_id,
            voted_id=self.voted_id,
            voted_directory_id=self.voted_directory_id,
        )


def role_at_start(election: Election, me: ReplicaKey, *, votes: bool) -> Role:
    """Derive the initial role from the election on disk.

    A former leader is RESIGNED: a power cut may have lost records of its epoch, and other content must not be written
    under the same offsets; nor may it vote for another. A node that voted for itself continues as CANDIDATE.
    """
    if election.leader_id == me.id:
        return Role.RESIGNED
    if election.leader_id != NOBODY:
        return Role.FOLLOWER
    return Role.CANDIDATE if votes and election.voted == me else Role.UNATTACHED
