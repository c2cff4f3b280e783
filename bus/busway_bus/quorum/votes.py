"""Majorities: who is elected, and what is committed.

What lives here: counting. What does not: whose vote is given to whom (`elections`), and how far the voters are (`progress`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto


def majority(voters_count: int) -> int:
    """The smallest number of voters of which any two groups share one."""
    return voters_count // 2 + 1


def committed_offset(voters_end_offsets: Iterable[int], epoch_start_offset: int) -> int | None:
    """The high watermark that these ends of the voters' logs allow: everything below it is on a majority.

    Args:
        voters_end_offsets: of every voter, the leader included, the offset behind the last record that is known to be on its disk; -1
            where nothing is known.
        epoch_start_offset: where the leader's epoch begins. What is before it may be on a majority and yet be overwritten, by a leader that
            has a later epoch there; what the leader wrote itself may not, and all that is before it neither (KIP-595).

    Returns:
        The offset, None while no record of the leader's own epoch is on a majority.
    """
    descending = sorted(voters_end_offsets, reverse=True)
    offset = descending[majority(len(descending)) - 1]
    return offset if offset > epoch_start_offset else None


class Verdict(Enum):
    """How an election stands."""

    OPEN = auto()
    WON = auto()
    LOST = auto()


@dataclass(slots=True, kw_only=True)
class Ballot:
    """The answers to one request for votes, or for what the votes would be.

    Attributes:
        voters: the ids of those who are asked, and of the one that asks.
        granted, rejected: those of them that have answered; whoever asks is for itself.
    """

    voters: tuple[int, ...]
    granted: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)

    def record(self, voter_id: int, *, granted: bool) -> None:
        """A voter has answered; its first answer counts, and nobody's who does not vote."""
        if voter_id in self.voters and voter_id not in self.granted | self.rejected:
            (self.granted if granted else self.rejected).add(voter_id)

    @property
    def unanswered(self) -> tuple[int, ...]:
        """Who has not answered, ascending."""
        return tuple(voter for voter in self.voters if voter not in self.granted and voter not in self.rejected)

    @property
    def verdict(self) -> Verdict:
        """What a majority says, or can no more say."""
        needed = majority(len(self.voters))
        if len(self.granted) >= needed:
            return Verdict.WON
        return Verdict.LOST if len(self.voters) - len(self.rejected) < needed else Verdict.OPEN

    @property
    def is_lost(self) -> bool:
        """Whether a majority has said no."""
        return self.verdict is Verdict.LOST
