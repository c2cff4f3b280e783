"""Log start offset in a file name: earlier records were deleted.

Here: that file.
Not here: its use (`deleted_segments`, `recovery`).

It is written before a segment's first file is deleted. A checkpoint needs space, which a full disk lacks; a rename
needs none: first of the deleted segment's time index, later of the note. Apache Kafka removes it at start, by its
suffix.
"""

from collections.abc import Iterable

from busway_bus.kernel.files import Files
from busway_bus.log.file_names import START, file_name


def noted(names: Iterable[str]) -> list[int]:
    """Parse the start offsets from file names, ascending. The last is valid."""
    offsets = (name.removesuffix(START) for name in names if name.endswith(START))
    return sorted(int(offset) for offset in offsets if offset.isdecimal())


class StartNote:
    """The note of one log. Waits for the disk; after an OSError a retry is safe."""

    def __init__(self, files: Files, directory: str, offset: int) -> None:
        self._files = files
        self._directory = directory
        self._offset = offset
        self._may_be_large = offset > 0

    def move(self, offset: int, spare: str) -> None:
        """Raise the noted offset durably; a lower one is ignored.

        `spare`: path of an unneeded file, renamed if there is no note yet.
        """
        if offset <= self._offset:
            return
        there = noted(self._files.list(self._directory))
        if offset in there:  # an earlier attempt failed after its rename
            self._files.sync_directory(self._directory)
        else:
            self._may_be_large |= not there
            self._files.rename(self._path(there[-1]) if there else spare, self._path(offset))
        self._offset = offset

    def empty(self) -> None:
        """Truncate the renamed file to free its space."""
        if self._may_be_large:
            file = self._files.open(self._path(self._offset))
            try:
                file.truncate(0)
            finally:
                file.close()
            self._may_be_large = False

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{file_name(offset, START)}"
