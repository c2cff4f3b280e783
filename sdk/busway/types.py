"""Values in the SDK's interface.

Timestamps are milliseconds since 1970.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias, TypedDict

Addresses: TypeAlias = str | Sequence[str]
"""`host:port`, several with commas or as a sequence."""
Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
"""A record's headers, in order; a name may repeat."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Record(NamedTuple):
    """A record as read.

    `timestamp_type` is 0 for the producer's clock, 1 for the broker's. `delivery_count` includes the current delivery
    by a share group; None for other consumers.
    """

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


class SendOptions(TypedDict, total=False):
    """Arguments of sending a record besides value and key.

    Headers are in order, and a name may repeat. The partition is by default chosen by the key, the timestamp is now.
    """

    headers: Headers
    partition: int | None
    timestamp_ms: int | None


class ProducerRecord(NamedTuple):
    """A record to send, with encoded key and value."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None

    @property
    def options(self) -> SendOptions:
        return {"headers": self.headers, "partition": self.partition, "timestamp_ms": self.timestamp_ms}


class RecordMetadata(NamedTuple):
    """Position of a written record. Offset -1 with acks 0, timestamp as stored."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """An offset to commit, with a text that is stored beside it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetsGuard(Protocol):
    """The consumer of some records. Decides whether their offsets may join a transaction."""

    def allow(self, partitions: Iterable[TopicPartition]) -> None:
        """Check that these offsets may join. Raises ValueError for auto commit, InvalidTransactionState during a commit
        of them.
        """

    def check(self, partitions: Iterable[TopicPartition], member: "GroupMetadata") -> None:
        """Raise TransactionAbortable for partitions revoked since, and without membership."""

    def settled(self, offsets: "Mapping[TopicPartition, OffsetAndMetadata]") -> None:
        """Note that these offsets joined a transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """A consumer's identity in its group. Fences offsets committed in a transaction (KIP-447).

    Attributes:
        generation: of the group; -1 for offsets without a member.
        member_id: empty with generation -1.
        instance_id: of a static member.
        guard: called before these offsets are sent; None if no consumer made this.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    guard: OffsetsGuard | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """The first record at or after a time."""

    offset: int
    timestamp_ms: int
