"""The values that users of the SDK handle.

What lives here: records and where they are. What does not: behaviour. Timestamps are milliseconds since 1970.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Record(NamedTuple):
    """One record as read. `timestamp_type` is 0 for the producer's clock, 1 for the broker's; `delivery_count` how many times a share
    group has handed it out with this time, None for other consumers."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int = -1
    delivery_count: int | None = None


class RecordMetadata(NamedTuple):
    """Where a record was put; offset -1 when acks is 0, timestamp as stored."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """An offset to commit, with a text that comes back with it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetsGuard(Protocol):
    """The consumer that handed records out, which says whether their offsets may become part of a transaction."""

    def allow(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise ValueError for a consumer that commits by itself, InvalidTransactionState while a commit of them is under way."""

    def check(self, partitions: Iterable[TopicPartition], member: "GroupMetadata") -> None:
        """Raise TransactionAbortable for partitions that were given up since, and for what is no member."""

    def settled(self, offsets: "Mapping[TopicPartition, OffsetAndMetadata]") -> None:
        """Note that these offsets are part of a transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """A consumer as its group knows it: what a producer fences offsets with that it commits in a transaction (KIP-447).

    Attributes:
        generation: of the group, -1 for offsets that no member commits.
        member_id: empty with generation -1.
        instance_id: of a static member.
        guard: asked before offsets are sent in this name; None where no consumer made this.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    guard: OffsetsGuard | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """The first record at or after a moment."""

    offset: int
    timestamp_ms: int
