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
    max_timestamp: int
    modified_ms: int

    @property
    def size(self) -> int:
        """Bytes of the log file."""


def expendable(segments: Sequence[SegmentView], config: LogConfig, now_ms: int) -> int:
    """How many of the oldest segments may go; one goes by its newest record, or when the others are still large enough.

    Where its records have no timestamps, the time of the last write counts.
    """
    total = sum(segment.size for segment in segments)
    for number, segment in enumerate(segments):
        newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.modified_ms
        expired = 0 <= config.retention_ms < now_ms - newest
        oversized = 0 <= config.retention_bytes <= total - segment.size
        if segment.size == 0 or not (expired or oversized):
            return number
        total -= segment.size
    return len(segments)
