"""The persisted state of a share partition, and its persister (KIP-932).

Here: the interface between a share partition and its share coordinator.
Not here: states of a record (`share`), the topic that stores them (`coordinator`).
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol
from uuid import UUID

AVAILABLE: Final = 0
ACKNOWLEDGED: Final = 2
ARCHIVING: Final = 3
ARCHIVED: Final = 4
"""Persisted delivery states. Acquired (1) is the leader's alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionKey:
    """A partition as one share group reads it."""

    group_id: str
    topic_id: UUID
    partition: int


class StateBatch(NamedTuple):
    """Offsets, bounds included, in the same state: a tuple, fast to create."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    """The persisted state of one share partition.

    Attributes:
        state_epoch: incremented by each reset.
        leader_epoch: of the last writer; -1 before the first.
        start_offset: all records before it are finished; -1 where undecided.
        delivery_complete_count: finished records from there on; -1 where unknown.
        batches: in offset order, without overlaps; empty in a summary.
    """

    state_epoch: int
    leader_epoch: int = -1
    start_offset: int
    delivery_complete_count: int = -1
    batches: tuple[StateBatch, ...] = ()


class SharePersister(Protocol):
    """Persists share partitions. Methods return once their change is durable.

    Raises:
        KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE (retry);
            FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH where a newer epoch has written; INVALID_REQUEST where the state was
            never initialized, or is deleted; UNKNOWN_TOPIC_OR_PARTITION; POLICY_VIOLATION where there is no room.
    """

    async def initialize(self, key: SharePartitionKey, *, state_epoch: int, start_offset: int) -> None:
        """Initialize the state, or reset it to a higher epoch."""
        ...

    async def read(self, key: SharePartitionKey, *, leader_epoch: int) -> ShareState:
        """Return the state for a leader; fence earlier epochs, except by -1."""
        ...

    async def write(self, key: SharePartitionKey, change: ShareState) -> None:
        """Merge batches, move the start offset, set the count of complete records.

        A start of -1 leaves it. The leader epoch is that of `read`. At most `SHARE_STATE_BATCHES_MAX` batches, with
        those in the state.
        """
        ...

    async def summary(self, key: SharePartitionKey) -> ShareState:
        """Return the state without batches.

        Uninitialized, its start is -1 and both epochs are 0.
        """
        ...

    async def delete(self, key: SharePartitionKey) -> None:
        """Delete the state, if it exists."""
        ...
