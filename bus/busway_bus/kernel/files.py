"""The broker's interface to the disk.

Here: protocols.
Not here: implementations: `log.os_files`, and in memory `testing.sim_files`.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol


class Loan(Protocol):
    """An open file, readable until released even if closed or removed meanwhile.

    `descriptor`: for `sendfile`; -1 without a descriptor.
    """

    descriptor: int

    def read(self, position: int, size: int) -> bytes:
        """Read `size` bytes from `position` on, fewer at the file's end."""

    def read_now(self, position: int, size: int) -> bytes | bytearray:
        """As `read`, without waiting for the disk.

        BlockingIOError: not all of it is in memory, or the file ends before.
        """

    def in_memory(self, position: int, size: int) -> bool:
        """Check cheaply whether these bytes are in memory."""

    def warm(self, position: int, size: int) -> None:
        """Wait until these bytes are in memory. Not on the event loop."""


class File(Protocol):
    """One open file. Sizes and positions are in bytes.

    `disposable`: the content can be rebuilt and is never synced.
    """

    size: int
    disposable: bool

    def append(self, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write the pieces at the end, all or an OSError."""

    def read(self, position: int, size: int) -> bytes:
        """As `Loan.read`."""

    def read_now(self, position: int, size: int) -> bytes:
        """As `read`, or raise BlockingIOError if not all is in memory."""

    def lend(self) -> Loan:
        """Return a handle to read the file with later."""

    def truncate(self, size: int) -> None:
        """Truncate to `size` bytes."""

    def rewrite(self, position: int) -> None:
        """Rewrite the bytes from `position` on: the next sync writes them."""

    def sync(self) -> None:
        """Sync all appended bytes. An OSError is final."""

    def close(self) -> None:
        """Close without syncing."""

    def spoil(self, problem: OSError) -> None:
        """Close a damaged file; later syncs fail."""


class Files(Protocol):
    """A directory tree; paths are relative, with slashes."""

    def open(self, path: str) -> File:
        """Open or create a file."""

    def open_later(self, path: str, size: int) -> File:
        """Return a file of `size` bytes, opened at first use."""

    def create_later(self, path: str) -> File:
        """Return a file that does not exist, created by its first append, even of nothing."""

    def sizes(self, path: str) -> Mapping[str, int]:
        """Return the sizes of a directory's files, if any."""

    def read_bytes(self, path: str) -> bytes | None:
        """Read a whole small file; None where it is missing."""

    def replace(self, path: str, content: bytes) -> None:
        """Replace a small file atomically: a power cut leaves either."""

    def remove(self, path: str) -> None:
        """Remove a file, if it exists.

        A power cut may restore it until its directory is synced.
        """

    def sync_directory(self, path: str) -> None:
        """Sync a directory's entries, removals included."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory durably."""

    def rename_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Rename a directory's entries durably, with one wait for the disk.

        After an OSError some may be renamed.
        """

    def list(self, path: str) -> Sequence[str]:
        """Return the sorted names in a directory; empty where it is missing."""

    def make_directory(self, path: str) -> None:
        """Create a directory durably; an existing one is no error."""

    def make_directories(self, names: Sequence[str]) -> None:
        """As `make_directory`, below the root, with one wait for the disk."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with its content."""


class DataDirectory(Files, Protocol):
    """One node's data directory, exclusive while open."""

    def volume(self) -> tuple[int, int]:
        """Return the volume's size and writable bytes; -1 where unknown."""

    def connections_max(self) -> int:
        """Return how many connections may be open besides files."""

    def close(self) -> None:
        """Release the directory."""
