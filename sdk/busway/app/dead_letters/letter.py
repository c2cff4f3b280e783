"""Dead letters as values, and their selection.

Here: parsing their headers; pure.
Not here: writing headers (`model.retry`), finding and replaying (`replay`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from busway.types import Record, TopicPartition

_SHARE: Final = "__dlq.errors."
_REASONS: Final = ("kafka_dlt-", "busway_dlt-", "busway_replay-")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record of a dead-letter topic.

    Attributes:
        partition, offset, timestamp_ms: in the dead-letter topic.
        key, value: of the original record.
        headers: of the original record, without the reasons.
        original: its topic and partition; None if not recorded.
        original_offset: -1 if not recorded.
        group: whose handler failed.
        handler: module and name; empty if the record was unreadable.
        error: class of the exception, with its module.
        message, stack: of the exception.
        attempts: calls of the handler.
        done: replayed or discarded.
    """

    partition: TopicPartition
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    original: TopicPartition | None
    original_offset: int
    group: str
    handler: str
    error: str
    message: str
    stack: str
    attempts: int
    done: bool

    @property
    def says_why(self) -> bool:
        """Whether it has headers of a dead letter, from a handler or a share group (KIP-1191)."""
        return bool(
            self.original or self.group or self.error or any(name.startswith(_SHARE) for name, _ in self.headers)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSummary:
    """Dead letters of one handler and exception in one topic; `newest_ms` is the time of the last one."""

    topic: str
    group: str
    handler: str
    error: str
    records: int
    open: int
    newest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSelection:
    """A filter of dead letters of a topic; None matches all.

    Attributes:
        partition, offset: in the dead-letter topic.
        key: raw.
        error: a part of the exception's class or message.
        limit: maximum number.
    """

    partition: int | None = None
    offset: int | None = None
    key: bytes | None = None
    error: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.offset is not None and self.partition is None:
            raise ValueError(f"offset {self.offset} is one of a partition: name the partition too")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit: {self.limit} is not 1 or more")

    def takes(self, letter: DeadLetter) -> bool:
        return (
            (self.partition is None or letter.partition.partition == self.partition)
            and (self.offset is None or letter.offset == self.offset)
            and (self.key is None or letter.key == self.key)
            and (self.error is None or self.error in letter.error or self.error in letter.message)
        )


def dead_letter(record: Record, *, done: bool) -> DeadLetter:
    """Parse a record of a dead-letter topic; missing fields are empty."""
    headers = {name: value or b"" for name, value in record.headers}

    def text(name: str) -> str:
        return headers.get(name, b"").decode(errors="replace")

    partition, offset = _number(headers, "kafka_dlt-original-partition"), _number(headers, "kafka_dlt-original-offset")
    topic = text("kafka_dlt-original-topic")
    return DeadLetter(
        partition=TopicPartition(record.topic, record.partition),
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=tuple(header for header in record.headers if not header[0].startswith(_REASONS)),
        original=TopicPartition(topic, partition) if topic else None,
        original_offset=offset,
        group=text("kafka_dlt-original-consumer-group"),
        handler=text("busway_dlt-handler"),
        error=text("kafka_dlt-exception-fqcn"),
        message=text("kafka_dlt-exception-message"),
        stack=text("kafka_dlt-exception-stacktrace"),
        attempts=max(_number(headers, "busway_dlt-attempts"), 0),
        done=done,
    )


def _number(headers: Mapping[str, bytes], name: str) -> int:
    """Parse digits (Busway) or four or eight big-endian bytes (Spring); -1 for others."""
    value = headers.get(name, b"")
    if value.isdigit():
        return int(value)
    return int.from_bytes(value, "big", signed=True) if len(value) in {4, 8} else -1
