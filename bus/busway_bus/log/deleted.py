"""Segments that are no longer part of a log, and those that will be next.

What lives here: their files, which get another name at once, so that no crash brings them back, and go when they are due; and looking up
how old a segment is. Before the first of them goes it is on disk where the log begins (`start_note`): a start tells by that what was
deleted from what is lost. What does not: which segments go (`retention`, `cleaner`), and the log that is read (`partition_log`).
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
class Deleted:
    """A segment whose files are to be removed when due, its producers' snapshot perhaps too.

    Attributes:
        start: where the log begins without it; None where another segment has taken its place.
    """

    due_ms: int
    segment: Segment
    snapshot: bool
    start: int | None = None

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


class DeletedSegments:
    """Those of one log whose files are still there, in the order in which they left it.

    `append` belongs to the thread that appends to the log, `remove` to any.

    Args:
        start: where it is on disk that the log begins, 0 where nothing is.
    """

    def __init__(self, files: Files, directory: str, kept: SideFiles, start: int) -> None:
        self._files = files
        self._directory = directory
        self._kept = kept
        self._note = StartNote(files, directory, start)
        self._entries: list[Deleted] = []

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, entry: Deleted) -> None:
        """One more; `remove` does the rest."""
        self._entries.append(entry)

    def remove(self, now_ms: int | None) -> None:
        """Set all files aside, and remove those that are due, or all of them where there is no time. Waits for the disk.

        Raises:
            OSError: the disk failed; it may be tried again.
        """
        entries = tuple(self._entries)
        with self._kept.guard:
            if not self._kept.closed:
                self._tell_start(entries)
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

    def _tell_start(self, entries: Sequence[Deleted]) -> None:
        starts = [(entry.start, entry.segment) for entry in entries if entry.start is not None]
        if starts:
            self._note.move(max(start for start, _ in starts), starts[0][1].path(".index"))

    def close(self) -> None:
        """Close the files that are left; the next start goes on."""
        for entry in self._entries:
            entry.segment.close()


def date(segments: Sequence[Segment], config: LogConfig, now_ms: int) -> None:
    """Look up how old the oldest closed segments are, as far as retention asks. Waits for the disk."""
    if "delete" not in config.cleanup_policy or config.retention_ms < 0:
        return
    for segment in segments:
        try:
            newest = segment.max_timestamp
        except CorruptBatch as problem:
            logger.error("nobody knows how old %s is, it is not deleted by its age: %s", segment.path(".log"), problem)
            return
        if now_ms - (newest if newest >= 0 else segment.modified_ms) <= config.retention_ms:
            return
