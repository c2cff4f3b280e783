"""Files of one log written by threads other than the appending one.

Here: the files of a flush and a cleaning. None is written after the log is closed: its directory may be another's.
Not here: when to write (`flush_point`, `cleaner`).
"""

import threading
from collections.abc import Sequence

from busway_bus.kernel.files import Files
from busway_bus.log.file_names import CLEANED, EPOCHS, SNAPSHOT, file_name
from busway_bus.log.recovery import write_snapshot
from busway_bus.log.segment import Segment


class SideFiles:
    """Side files of one log. `guard` is held during each write.

    `truncations`: of the log so far.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self.guard = threading.Lock()
        self.closed = False
        self.truncations = 0

    def write_epochs(self, content: bytes, truncations: int) -> None:
        """Write the leader epochs, unless from before a truncation, which writes its own."""
        with self.guard:
            if not self.closed and truncations == self.truncations:
                self._files.replace(f"{self._directory}/{EPOCHS}", content)

    def write_snapshot(self, offset: int, snapshot: bytes, truncations: int, *, instead_of: Sequence[int] = ()) -> None:
        """Write the producer snapshot of `offset`, then remove those at `instead_of`.

        A write error is only logged (see `recovery`). A snapshot from before a truncation is dropped.
        """
        with self.guard:
            if self.closed or truncations != self.truncations:
                return
            if write_snapshot(self._files, self._directory, offset, snapshot):
                for outdated in instead_of:
                    self._files.remove(f"{self._directory}/{file_name(outdated, SNAPSHOT)}")

    def new_segment(self, base_offset: int, created_ms: int) -> Segment:
        """Create an empty `.cleaned` segment, for `PartitionLog.swap_in`.

        OSError also if the log is closed.
        """
        with self.guard:
            if self.closed:
                raise FileNotFoundError(self._directory)
            for name in self._files.list(self._directory):
                if name.endswith(CLEANED):
                    self._files.remove(f"{self._directory}/{name}")
            return Segment(self._files, self._directory, base_offset, created_ms, suffix=CLEANED)

    def rename(self, segment: Segment, suffix: str) -> bool:
        """Change a segment's suffix. False if the log is closed."""
        with self.guard:
            if self.closed:
                return False
            segment.rename(suffix)
            return True
