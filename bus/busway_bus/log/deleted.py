"""Segments that are no longer part of a log, and those that will be next.

What lives here: their files, which get another name at once, so that no crash brings them back, and go when they are due; and looking up
how old a segment is. What does not: which segments go (`retention`, `cleaner`), and the log that is read (`partition_log`).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from busway_bus.kernel.files import Files
from busway_bus.log.file_names import DELETED, SNAPSHOT, file_name
from busway_bus.log.log_config import LogConfig
from busway_bus.log.segment import Segment
from busway_protocol.records.batch import CorruptBatch

log = logging.getLogger("busway.log")


@dataclass(frozen=True, slots=True)
class Deleted:
    """A segment whose files are to be removed when due, its producers' snapshot perhaps too."""

    due_ms: int
    segment: Segment
    snapshot: bool

    def remove(self, files: Files, directory: str, now_ms: int) -> bool:
        """Set its files aside, and remove them when they are due; answers whether they are gone. Waits for the disk.

        Raises:
            OSError: the disk failed; it may be tried again.
        """
        if not self.segment.deleted:
            self.segment.rename(DELETED)
            if self.snapshot:
                files.remove(f"{directory}/{file_name(self.segment.base_offset, SNAPSHOT)}")
        if self.due_ms > now_ms:
            return False
        self.segment.delete()
        return True


def date(segments: Sequence[Segment], config: LogConfig, now_ms: int) -> None:
    """Look up how old the oldest closed segments are, as far as retention asks. Waits for the disk."""
    if "delete" not in config.cleanup_policy or config.retention_ms < 0:
        return
    for segment in segments:
        try:
            newest = segment.max_timestamp
        except CorruptBatch as problem:
            log.error("nobody knows how old %s is, it is not deleted by its age: %s", segment.path(".log"), problem)
            return
        if now_ms - (newest if newest >= 0 else segment.modified_ms) <= config.retention_ms:
            return
