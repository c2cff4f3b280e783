"""The broker's interface to the disk.

What lives here: what a log needs of a file system, as protocols. What does not: implementations. `log.os_files` uses the operating system.
`testing.sim_files` is in memory and can lose unsynced data, as a power cut does.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol


class Loan(Protocol):
    """An open file, readable until released even if closed or removed meanwhile.

    Attributes:
        descriptor: of the operating system, for `sendfile`; -1 where there is none.
    """

    descriptor: int

    def read(self, position: int, size: int) -> bytes:
        """Read `size` bytes from `position` on, fewer at the file's end."""

    def read_now(self, position: int, size: int) -> bytes | bytearray:
        """Read as `read` does, without waiting for the disk.

        Raises:
            BlockingIOError: not all of it is in memory, or the file ends before.
        """

    def in_memory(self, position: int, size: int) -> bool:
        """Check cheaply whether these bytes can be read without the disk."""

    def warm(self, position: int, size: int) -> None:
        """Wait until these bytes are in memory. Not for the thread of the event loop."""


class File(Protocol):
    """One open file. Sizes and positions are in bytes.

    Attributes:
        disposable: set where the content can be rebuilt and is never synced.
    """

    size: int
    disposable: bool

    def append(self, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write the pieces at the end, all or an OSError."""

    def read(self, position: int, size: int) -> bytes:
        """Read `size` bytes from `position` on, fewer at the file's end."""

    def read_now(self, position: int, size: int) -> bytes:
        """Read as `read` does, without waiting for the disk.

        Raises:
            BlockingIOError: not all of it is in memory.
        """

    def lend(self) -> Loan:
        """Return a handle to read the file with later."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def rewrite(self, position: int) -> None:
        """Rewrite the bytes from `position` on in place. The next sync then writes them to disk, even if an earlier one failed."""

    def sync(self) -> None:
        """Return once all appended bytes are on disk. An OSError is final: the pages may be lost."""

    def close(self) -> None:
        """Close without syncing."""

    def spoil(self, problem: OSError) -> None:
        """Close a file whose end could not be repaired. Appended bytes that were not synced never count as synced."""


class Files(Protocol):
    """A directory tree; paths are relative to the data directory, with slashes."""

    def open(self, path: str) -> File:
        """Open the file at `path`; create it where it is missing."""

    def open_later(self, path: str, size: int) -> File:
        """Return the file at `path`, of `size` bytes (see `sizes`). It is opened at first use."""

    def sizes(self, path: str) -> Mapping[str, int]:
        """Return the files in a directory with their sizes in bytes. Empty where it is missing."""

    def read_bytes(self, path: str) -> bytes | None:
        """Read a whole small file; None where it is missing."""

    def replace(self, path: str, content: bytes) -> None:
        """Replace a small file atomically. After a power cut the old or the new one is there."""

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is no error. After a power cut it may be back, until its directory is synced."""

    def sync_directory(self, path: str) -> None:
        """Return once the entries of a directory, removals included, are on disk."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory durably."""

    def rename_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Rename entries of one directory durably, with one wait for the disk. After an OSError some may have the new name."""

    def list(self, path: str) -> Sequence[str]:
        """Return the sorted names in a directory; empty where it is missing."""

    def make_directory(self, path: str) -> None:
        """Create a directory durably; an existing one is no error."""

    def make_directories(self, names: Sequence[str]) -> None:
        """Create directories below the root durably, with one wait for the disk. Existing ones are no error."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with its content."""


class DataDirectory(Files, Protocol):
    """The data directory of one node, exclusive while it is open."""

    def volume(self) -> tuple[int, int]:
        """Return the volume's size and writable bytes; -1 where unknown."""

    def connections_max(self) -> int:
        """Return how many connections may be open besides the files."""

    def close(self) -> None:
        """Release the directory."""
