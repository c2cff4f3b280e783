"""The broker's interface to the disk.

What lives here: what a log needs of a file system, as protocols. `log.os_files` does it with the operating system;
`testing.sim_files` does it in memory and can lose what was never synced, as a power cut does.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol


class Loan(Protocol):
    """An open file that can be read for as long as somebody has this, whether it is closed or removed meanwhile.

    Attributes:
        descriptor: of the operating system, for `sendfile`; -1 where the content lies elsewhere.
    """

    descriptor: int

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes from `position` on; fewer at the end of the file."""

    def read_now(self, position: int, size: int) -> bytes | bytearray:
        """As `read`, but never waits for the disk.

        Raises:
            BlockingIOError: not all of it is in memory, or the file ends before.
        """

    def in_memory(self, position: int, size: int) -> bool:
        """Whether these bytes can be read without a wait for the disk, as far as a cheap look tells."""

    def warm(self, position: int, size: int) -> None:
        """Wait, in any thread but the event loop's, until these bytes are in memory."""


class File(Protocol):
    """One open file. Sizes and positions are in bytes.

    Attributes:
        disposable: to be set by who can make the content again and never syncs it.
    """

    size: int
    disposable: bool

    def append(self, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write the pieces at the end, all or an OSError."""

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes from `position` on; fewer at the end of the file."""

    def read_now(self, position: int, size: int) -> bytes:
        """As `read`, but never waits for the disk.

        Raises:
            BlockingIOError: not all of it is in memory.
        """

    def lend(self) -> Loan:
        """Something to read the file with later."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def rewrite(self, position: int) -> None:
        """Write what is there from `position` on once more, in its place, so that the next sync puts it on disk whatever became of an
        earlier one."""

    def sync(self) -> None:
        """Return when all that was appended is on disk. An OSError is final: the pages may be gone."""

    def close(self) -> None:
        """Close without syncing."""

    def spoil(self, problem: OSError) -> None:
        """Close a file whose end could not be mended: what was appended before and not synced never counts as synced."""


class Files(Protocol):
    """A directory tree; paths are relative to the data directory, with slashes."""

    def open(self, path: str) -> File:
        """The file at `path`, made when it is not there."""

    def open_later(self, path: str, size: int) -> File:
        """The file at `path`, which has so many bytes (see `sizes`); nothing is opened before it is used."""

    def sizes(self, path: str) -> Mapping[str, int]:
        """The files in a directory and how many bytes each has; empty when it is not there."""

    def read_bytes(self, path: str) -> bytes | None:
        """A whole small file, None when it is not there."""

    def replace(self, path: str, content: bytes) -> None:
        """Put `content` in place of a small file so that after a power cut either the old or the new one is there."""

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens when it is not there. After a power cut it may be back, until its directory is synced."""

    def sync_directory(self, path: str) -> None:
        """Return when the names in a directory, and that others are gone from it, are on disk."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory durably."""

    def rename_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Rename files or directories of one directory durably, with one wait for the disk; or an OSError, and some of them have the
        new name."""

    def list(self, path: str) -> Sequence[str]:
        """The names in a directory, sorted; empty when it is not there."""

    def make_directory(self, path: str) -> None:
        """Make a directory durably; nothing happens when it is there."""

    def make_directories(self, names: Sequence[str]) -> None:
        """Make directories below the root durably, with one wait for the disk; nothing happens to those that are there."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it."""


class DataDirectory(Files, Protocol):
    """The data directory of one node, nobody else's while it is open."""

    def volume(self) -> tuple[int, int]:
        """How many bytes the volume has, and how many of them may still be written; -1 where it does not say."""

    def connections_max(self) -> int:
        """How many connections may be open beside the files."""

    def close(self) -> None:
        """Give the directory back."""
