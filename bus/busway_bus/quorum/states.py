"""What a node is in the quorum, the table of what leads from one to another, and what of it has to be on disk.

What lives here: roles, events, the table, and the election as the file `quorum-state` keeps it (KIP-595, KIP-853, KIP-996). What does
not: what causes the events (`core`).
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
    """What a node is in its epoch.

    UNATTACHED: knows no leader, asks voters for one; a voter may have given its vote. Exits: an epoch, a leader, time.
    PROSPECTIVE: asks whether it would get votes, in an epoch that it leaves alone (pre-vote). Exits: their answers, an epoch, a leader, time.
    CANDIDATE: has voted for itself in an epoch of its own and asks for votes. Exits: their answers, an epoch, a leader, time.
    FOLLOWER: copies a leader's log. Exits: an epoch, a leader of a later one, time without an answer.
    LEADER: takes records in and is fetched from. Exits: an epoch, a leader of a later one, no fetches from a majority, the end of the node.
    RESIGNED: has led this epoch, and will not again; gives no vote in it. Exits: an epoch, a leader of a later one, time.
    """

    UNATTACHED = auto()
    PROSPECTIVE = auto()
    CANDIDATE = auto()
    FOLLOWER = auto()
    LEADER = auto()
    RESIGNED = auto()


class Event(Enum):
    """What moves a node."""

    EPOCH_SEEN = auto()
    """Somebody is in a later epoch, of which no leader is known."""
    LEADER_SEEN = auto()
    """Somebody else leads: a later epoch, or this one, of which no leader was known."""
    VOTED = auto()
    """It gave its vote to another."""
    TIMED_OUT = auto()
    """Nothing came of what it waited for; a prospective one that knows no leader."""
    LEADER_REMEMBERED = auto()
    """A prospective one lost, or timed out, and goes back to the leader that it knew."""
    WOULD_WIN = auto()
    """A majority would vote for it."""
    ELECTED = auto()
    """A majority has."""
    RESIGNED = auto()
    """It gives up to lead: a majority does not fetch, or it is about to end."""


class Move(NamedTuple):
    """Where an event leads to, and whether the election has to be on disk before anybody hears of it."""

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
        # Whoever has led begins as RESIGNED again, since the file says that it leads.
        (Role.LEADER, Event.RESIGNED): Move(Role.RESIGNED, saves=False),
        # In an epoch of which it is known as the leader it cannot follow anybody, so it leaves it.
        (Role.RESIGNED, Event.TIMED_OUT): Move(Role.UNATTACHED, saves=True),
    },
)
"""(role, event) → what the node is after it. What is not here does not happen: whoever causes events looks first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """What a node knows of the election of its epoch, the content of `quorum-state`: on disk before an answer tells of it.

    Attributes:
        epoch: the latest that was seen.
        leader_id: who leads it, -1 where that is not known.
        voted_id, voted_directory_id: who has this node's vote in it, -1 and zeros where it is not given.
    """

    epoch: int = 0
    leader_id: int = NOBODY
    voted_id: int = NOBODY
    voted_directory_id: UUID = ZERO_UUID

    @property
    def voted(self) -> ReplicaKey | None:
        """Who has the vote."""
        return None if self.voted_id == NOBODY else ReplicaKey(self.voted_id, self.voted_directory_id)

    def in_epoch(self, epoch: int) -> "Election":
        """A later epoch was seen: nobody is known in it, nobody has the vote."""
        assert epoch > self.epoch, f"epoch {epoch} does not follow on {self.epoch}"
        return Election(epoch=epoch)

    def voting_for(self, candidate: ReplicaKey) -> "Election":
        """The vote of this epoch is given."""
        assert self.voted is None or self.voted == candidate, f"the vote of epoch {self.epoch} is given already"
        return Election(
            epoch=self.epoch,
            leader_id=self.leader_id,
            voted_id=candidate.id,
            voted_directory_id=candidate.directory_id,
        )

    def led_by(self, leader_id: int, epoch: int) -> "Election":
        """The leader of this or a later epoch is known; a vote of this one stays given."""
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
    """What a node begins as, by its election on disk.

    Whoever led is RESIGNED: records of the epoch may have been lost with the power, and must not be written anew with other content under
    the same offsets; nor may it vote for another. Whoever was elected by itself alone goes on asking for votes.
    """
    if election.leader_id == me.id:
        return Role.RESIGNED
    if election.leader_id != NOBODY:
        return Role.FOLLOWER
    return Role.CANDIDATE if votes and election.voted == me else Role.UNATTACHED
