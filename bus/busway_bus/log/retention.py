"""Which segments are too old or too many.

What lives here: the choice by retention.ms and retention.bytes. What does not: deleting them (`partition_log`), and compaction.
"""

from collections.abc import Sequence
from typing import Protocol

from busway_bus.log.log_config import LogConfig


class SegmentView(Protocol):
    """What the rules need to know of a segment."""

    base_offset: int
    next_offset: int
    modified_ms: int

    @property
    def size(self) -> int:
        """Bytes of the log file."""

    @property
    def dated(self) -> bool:
        """Whether `max_timestamp` is at hand."""

    @property
    def max_timestamp(self) -> int:
        """Largest record timestamp, -1 when there is none."""


def expendable(segments: Sequence[SegmentView], config: LogConfig, now_ms: int) -> int:
    """How many of the oldest segments may go; one goes by its newest record, or when the others are still large enough.

    Where its records have no timestamps, the time of the last write counts; where nobody has looked for them yet, it stays.
    """
    total = sum(segment.size for segment in segments)
    for number, segment in enumerate(segments):
        oversized = 0 <= config.retention_bytes <= total - segment.size
        if segment.size == 0 or not (oversized or _expired(segment, config, now_ms)):
            return number
        total -= segment.size
    return len(segments)


def _expired(segment: SegmentView, config: LogConfig, now_ms: int) -> bool:
    if config.retention_ms < 0 or not segment.dated:
        return False
    newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.modified_ms
    return config.retention_ms < now_ms - newest
