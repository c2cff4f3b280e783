"""Majorities: elections and commits.

Here: counting.
Not here: rules for granting votes (`elections`), the voters' progress (`progress`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto


def majority(voters_count: int) -> int:
    """Return the smallest number of voters of which any two groups overlap."""
    return voters_count // 2 + 1


def committed_offset(voters_end_offsets: Iterable[int], epoch_start_offset: int) -> int | None:
    """Compute the high watermark: everything below it is on a majority.

    Args:
        voters_end_offsets: for every voter, the leader included, the offset behind its last record on disk; -1 if unknown.
        epoch_start_offset: start of the leader's epoch. Earlier records on a majority may still be overwritten by a leader
            with a later epoch there. Once a record of the leader's own epoch is on a majority, neither it nor any earlier
            record can be (KIP-595); until then None is returned.
    """
    descending = sorted(voters_end_offsets, reverse=True)
    offset = descending[majority(len(descending)) - 1]
    return offset if offset > epoch_start_offset else None


class BallotResult(Enum):
    """State of an election."""

    OPEN = auto()
    WON = auto()
    LOST = auto()


@dataclass(slots=True, kw_only=True)
class Ballot:
    """The responses to one round of votes or pre-votes.

    The requesting node is a voter and grants its own.
    """

    voters: tuple[int, ...]
    granted: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)

    def record(self, voter_id: int, *, granted: bool) -> None:
        """Record a voter's first response; others are ignored."""
        if voter_id in self.voters and voter_id not in self.granted | self.rejected:
            (self.granted if granted else self.rejected).add(voter_id)

    @property
    def unanswered(self) -> tuple[int, ...]:
        return tuple(voter for voter in self.voters if voter not in self.granted and voter not in self.rejected)

    @property
    def result(self) -> BallotResult:
        needed = majority(len(self.voters))
        if len(self.granted) >= needed:
            return BallotResult.WON
        return BallotResult.LOST if len(self.voters) - len(self.rejected) < needed else BallotResult.OPEN

    @property
    def is_lost(self) -> bool:
        return self.result is BallotResult.LOST
