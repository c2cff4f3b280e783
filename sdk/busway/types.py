"""The values that users of the SDK handle.

What lives here: records and where they are. What does not: behaviour. Timestamps are milliseconds since 1970.
"""

from dataclasses import dataclass
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Record(NamedTuple):
    """One record as read. `timestamp_type` is 0 for the producer's clock, 1 for the broker's."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int = -1


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


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """The first record at or after a moment."""

    offset: int
    timestamp_ms: int
