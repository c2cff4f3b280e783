"""The voters of the metadata log, and changes of them (KIP-853).

Here: replicas with their log's directory, the voter set, versions of the quorum's protocol.
Not here: the voters' progress (`progress`), writing a changed set into the log, which the core does not do yet.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from busway_protocol.types import ZERO_UUID


class KRaftVersion(IntEnum):
    """Levels of `kraft.version`: FIXED voters are a setting without directories, DYNAMIC in the log."""

    FIXED = 0
    DYNAMIC = 1


class ReplicaKey(NamedTuple):
    """A node and the directory of its log; all zeros if unknown."""

    id: int
    directory_id: UUID = ZERO_UUID


class Endpoint(NamedTuple):
    """An address of a voter, by the listener's name."""

    name: str
    host: str
    port: int


class VersionRange(NamedTuple):
    """The levels of `kraft.version` that a voter supports."""

    lowest: int
    highest: int


_FIXED_ALONE: Final = VersionRange(KRaftVersion.FIXED, KRaftVersion.FIXED)


class RefusedChange(ValueError):
    """A refused change of the voter set, with reason and remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    supported: VersionRange = _FIXED_ALONE


class VoterSet:
    """The voters by their ids, immutable. A changed set differs in one voter.

    Majorities of two such sets overlap: no offset is decided twice while nodes know different sets.
    """

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter]) -> None:
        self._voters = {voter.key.id: voter for voter in sorted(voters, key=lambda voter: voter.key)}

    @classmethod
    def fixed(cls, ids: Iterable[int]) -> "VoterSet":
        """Build voters known by id only, as with `kraft.version` 0."""
        return cls(Voter(key=ReplicaKey(node_id)) for node_id in ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(self.keys)

    def __len__(self) -> int:
        return len(self._voters)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self._voters)

    @property
    def keys(self) -> frozenset[ReplicaKey]:
        return frozenset(voter.key for voter in self._voters.values())

    def key(self, node_id: int) -> ReplicaKey | None:
        voter = self._voters.get(node_id)
        return None if voter is None else voter.key

    def has(self, replica: ReplicaKey) -> bool:
        """Whether this replica votes.

        A node with a new directory is another replica, unless the set knows no directories.
        """
        voter = self._voters.get(replica.id)
        return voter is not None and voter.key.directory_id in {ZERO_UUID, replica.directory_id}

    def with_voter(self, voter: Voter) -> "VoterSet":
        """Add a voter. RefusedChange: its id is among the voters."""
        if voter.key.id in self._voters:
            raise RefusedChange(
                f"node {voter.key.id} votes already; remove it first, with the directory that it voted with"
            )
        return VoterSet((*self._voters.values(), voter))

    def without_voter(self, replica: ReplicaKey) -> "VoterSet":
        """Remove a voter. RefusedChange: it is not a voter, or the last."""
        voter = self._voters.get(replica.id)
        if voter is None or voter.key != replica:
            raise RefusedChange(
                f"node {replica.id} with directory {replica.directory_id} is none of the voters {sorted(self.keys)}"
            )
        if len(self._voters) == 1:
            raise RefusedChange(f"node {replica.id} is the last voter; add another one first")
        return VoterSet(other for other in self._voters.values() if other is not voter)

    def updated(self, voter: Voter) -> "VoterSet":
        """Return the set with new addresses or versions of one voter.

        An unknown directory is filled in. RefusedChange: it is not a voter.
        """
        if not self.has(voter.key):
            raise RefusedChange(
                f"node {voter.key.id} with directory {voter.key.directory_id} is none of the voters {sorted(self.keys)}"
            )
        return VoterSet((*(other for other in self._voters.values() if other.key.id != voter.key.id), voter))

    def overlaps(self, other: "VoterSet") -> bool:
        """Whether any two majorities overlap: at most one voter differs on each side."""
        return len(self.keys - other.keys) <= 1 and len(other.keys - self.keys) <= 1

    def supports(self, version: int) -> bool:
        return all(voter.supported.lowest <= version <= voter.supported.highest for voter in self._voters.values())
