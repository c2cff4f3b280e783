"""What is kept of a share partition, and who keeps it (KIP-932).

What lives here: the values that a share partition hands to its share coordinator and gets back, and the interface between the two. What
does not: the states that a record goes through (`share`), the topic that keeps them (`coordinator`).
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol
from uuid import UUID

AVAILABLE: Final = 0
ACKNOWLEDGED: Final = 2
ARCHIVING: Final = 3
ARCHIVED: Final = 4
"""Delivery states that are kept; that somebody has a record just now (1) is known to the leader of the partition alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionKey:
    """A partition as one share group reads it."""

    group_id: str
    topic_id: UUID
    partition: int


class StateBatch(NamedTuple):
    """Records of a range of offsets, bounds included, that are in the same state. There may be very many of them: a tuple is made soon."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    """What is kept of one share partition.

    Attributes:
        state_epoch: raised whenever the state is begun anew.
        leader_epoch: of the partition's leader that has written last; -1 before the first.
        start_offset: what is before it is done with; -1 where nobody has decided yet.
        delivery_complete_count: records from there on that are done with; -1 where that is not known.
        batches: by offset, without overlaps; empty in a summary.
    """

    state_epoch: int
    leader_epoch: int = -1
    start_offset: int
    delivery_complete_count: int = -1
    batches: tuple[StateBatch, ...] = ()


class SharePersister(Protocol):
    """Where share partitions are kept. Every method returns when it is durable.

    Raises:
        KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE (come again); FENCED_STATE_EPOCH,
            FENCED_LEADER_EPOCH where somebody newer has written; INVALID_REQUEST where the state was never begun, or is forgotten;
            UNKNOWN_TOPIC_OR_PARTITION where there is no such partition; POLICY_VIOLATION where there is no room.
    """

    async def initialize(self, key: SharePartitionKey, *, state_epoch: int, start_offset: int) -> None:
        """Begin the state, or begin it anew where the epoch is higher."""
        ...

    async def read(self, key: SharePartitionKey, *, leader_epoch: int) -> ShareState:
        """The state as it was, for a leader of the partition; leaders of earlier epochs write nothing from here on. -1 asks for it without
        being one."""
        ...

    async def write(self, key: SharePartitionKey, change: ShareState) -> None:
        """Merge batches into the state, move its start (-1 leaves it), set how many are complete. The leader epoch is that which the
        state was read with; batches are at most `SHARE_STATE_BATCHES_MAX` together with those that are there."""
        ...

    async def summary(self, key: SharePartitionKey) -> ShareState:
        """The state without its batches; of one that was never begun the start is -1 and both epochs are 0."""
        ...

    async def delete(self, key: SharePartitionKey) -> None:
        """Forget the state; one that is not there is no error."""
        ...
