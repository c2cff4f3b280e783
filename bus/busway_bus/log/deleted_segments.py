"""Deleted segments of a log, and the age of the next.

Here: renaming their files, removing due ones, a segment's age. By the log start offset, written before (`start_note`),
a start distinguishes deleted from lost segments.
Not here: the choice of segments (`retention`, `cleaner`).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from busway_bus.kernel.files import Files
from busway_bus.log.file_names import DELETED, SNAPSHOT, file_name
from busway_bus.log.log_config import LogConfig
from busway_bus.log.segment import Segment
from busway_bus.log.side_files import SideFiles
from busway_bus.log.start_note import StartNote
from busway_protocol.records.batch import CorruptBatch

logger = logging.getLogger("busway.log")


@dataclass(frozen=True, slots=True)
class DeletedSegment:
    """A deleted segment.

    Attributes:
        snapshot: its producer snapshot is deleted too.
        start: log start offset without it; None if another segment replaces it.
    """

    due_ms: int
    segment: Segment
    snapshot: bool
    start: int | None = None

    def remove(self, files: Files, directory: str, now_ms: int) -> bool:
        """Rename the files, remove due ones; return whether they are removed.

        Waits for the disk; after an OSError a retry is safe.
        """
        if not self.segment.deleted:
            self.segment.rename(DELETED)
            if self.snapshot:
                files.remove(f"{directory}/{file_name(self.segment.base_offset, SNAPSHOT)}")
        if self.due_ms > now_ms:
            return False
        self.segment.delete()
        return True


class DeletedSegments:
    """Deleted segments with remaining files, in order of deletion.

    Call `append` in the thread that appends to the log, `remove` in any. `start`: the noted log start offset, or 0.
    """

    def __init__(self, files: Files, directory: str, kept: SideFiles, start: int) -> None:
        self._files = files
        self._directory = directory
        self._kept = kept
        self._note = StartNote(files, directory, start)
        self._entries: list[DeletedSegment] = []

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, entry: DeletedSegment) -> None:
        self._entries.append(entry)

    def remove(self, now_ms: int | None) -> None:
        """As `DeletedSegment.remove`, for all; None removes all."""
        entries = tuple(self._entries)
        with self._kept.guard:
            if not self._kept.closed:
                self._note_start(entries)
        for entry in entries:
            with self._kept.guard:
                if self._kept.closed:
                    return
                gone = entry.remove(self._files, self._directory, entry.due_ms if now_ms is None else now_ms)
                if gone and entry in self._entries:
                    self._entries.remove(entry)
        with self._kept.guard:
            if not self._kept.closed and not self._entries:
                self._note.empty()

    def _note_start(self, entries: Sequence[DeletedSegment]) -> None:
        starts = [(entry.start, entry.segment) for entry in entries if entry.start is not None]
        if starts:
            self._note.move(max(start for start, _ in starts), starts[0][1].path(".index"))

    def close(self) -> None:
        """Close the remaining files; the next start removes them."""
        for entry in self._entries:
            entry.segment.close()


def date(segments: Sequence[Segment], config: LogConfig, now_ms: int) -> None:
    """Look up the age of the oldest closed segments. Waits for the disk."""
    if "delete" not in config.cleanup_policy or config.retention_ms < 0:
        return
    for segment in segments:
        try:
            newest = segment.max_timestamp
        except CorruptBatch as problem:
            logger.error("the age of %s is unknown, so it is not deleted by its age: %s", segment.path(".log"), problem)
            return
        if now_ms - (newest if newest >= 0 else segment.modified_ms) <= config.retention_ms:
            return
