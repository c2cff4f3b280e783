"""The directory of one log, for threads beside the one that appends: once the log is closed nothing is written there, as the directory
may be another's by then.

What lives here: the files that a flush and a cleaning write. What does not: when they do (`flush_point`, `cleaner`).
"""

import threading
from collections.abc import Sequence

from busway_bus.kernel.files import Files
from busway_bus.log.file_names import CLEANED, EPOCHS, SNAPSHOT, file_name
from busway_bus.log.recovery import write_snapshot
from busway_bus.log.segment import Segment


class SideFiles:
    """Of one log.

    Attributes:
        guard: held while anything is written.
        closed: whether nothing is any more.
        truncations: how often the log was cut.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self.guard = threading.Lock()
        self.closed = False
        self.truncations = 0

    def write_epochs(self, content: bytes) -> None:
        """Write which leader epoch began where.

        Raises:
            OSError: the disk failed.
        """
        with self.guard:
            if not self.closed:
                self._files.replace(f"{self._directory}/{EPOCHS}", content)

    def write_snapshot(self, offset: int, snapshot: bytes, truncations: int, *, instead_of: Sequence[int] = ()) -> None:
        """Write the producers' state as of `offset`; one that cannot be written is no failure (see `recovery`). Where the log was cut
        since the state was taken, nobody knows whether it ever comes to that."""
        with self.guard:
            if self.closed or truncations != self.truncations:
                return
            if write_snapshot(self._files, self._directory, offset, snapshot):
                for outdated in instead_of:
                    self._files.remove(f"{self._directory}/{file_name(outdated, SNAPSHOT)}")

    def new_segment(self, base_offset: int, created_ms: int) -> Segment:
        """An empty segment beside the log, to be put in place with `PartitionLog.swap_in`.

        Raises:
            OSError: the disk failed, or the log was closed meanwhile.
        """
        with self.guard:
            if self.closed:
                raise FileNotFoundError(self._directory)
            for name in self._files.list(self._directory):
                if name.endswith(CLEANED):
                    self._files.remove(f"{self._directory}/{name}")
            return Segment(self._files, self._directory, base_offset, created_ms, suffix=CLEANED)

    def rename(self, segment: Segment, suffix: str) -> bool:
        """Give a segment's files another ending; False when the log was closed meanwhile."""
        with self.guard:
            if self.closed:
                return False
            segment.rename(suffix)
            return True
