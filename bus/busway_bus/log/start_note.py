"""Where a log begins, told by the name of a file: what was before that was deleted, and is not lost.

What lives here: that file. What does not: which segments go (`deleted`), and what a start makes of it (`recovery`).

It is told before the first file of a segment goes. The checkpoints tell it too, but they need room, and a full disk is when room has to be
made. So a file that is there gets another name, which takes none: the index of the first segment that ever goes, later on the file itself.
Its name ends like those of what is deleted, so that Apache Kafka removes it when it is given the directory.
"""

from collections.abc import Iterable

from busway_bus.kernel.files import Files
from busway_bus.log.file_names import START, file_name


def noted(names: Iterable[str]) -> list[int]:
    """The offsets that the files of a directory name, the last one in force."""
    offsets = (name.removesuffix(START) for name in names if name.endswith(START))
    return sorted(int(offset) for offset in offsets if offset.isdecimal())


class StartNote:
    """Of one log; its methods wait for the disk.

    Args:
        offset: what it says already, 0 where there is none.
    """

    def __init__(self, files: Files, directory: str, offset: int) -> None:
        self._files = files
        self._directory = directory
        self._offset = offset
        self._may_be_large = offset > 0

    def move(self, offset: int, spare: str) -> None:
        """Say durably that the log begins at `offset`, or further on already.

        Args:
            spare: path of a file that can be spared, where there is no note yet.

        Raises:
            OSError: the disk failed; it may be tried again.
        """
        if offset <= self._offset:
            return
        there = noted(self._files.list(self._directory))
        if offset in there:  # an attempt failed behind the renaming
            self._files.sync_directory(self._directory)
        else:
            self._may_be_large |= not there
            self._files.rename(self._path(there[-1]) if there else spare, self._path(offset))
        self._offset = offset

    def empty(self) -> None:
        """Free what the spare file holds, which nobody reads any more.

        Raises:
            OSError: the disk failed; it may be tried again.
        """
        if self._may_be_large:
            file = self._files.open(self._path(self._offset))
            try:
                file.truncate(0)
            finally:
                file.close()
            self._may_be_large = False

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{file_name(offset, START)}"
