"""Choice of segments to delete by retention.ms and retention.bytes.

Here: the choice.
Not here: deletion (`partition_log`), compaction.
"""

from collections.abc import Sequence
from typing import Protocol

from busway_bus.log.log_config import LogConfig


class SegmentView(Protocol):
    base_offset: int
    next_offset: int
    modified_ms: int

    @property
    def size(self) -> int:
        """Bytes of the log file."""

    @property
    def dated(self) -> bool:
        """Whether `max_timestamp` is in memory."""

    @property
    def max_timestamp(self) -> int:
        """Largest record timestamp, -1 if there is none."""


def expendable(segments: Sequence[SegmentView], config: LogConfig, now_ms: int) -> int:
    """Count the oldest segments that may be deleted.

    A segment expires by its largest timestamp, without any by its last write, or when the later ones have at least
    retention.bytes; by age only if `dated`.
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
