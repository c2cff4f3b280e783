"""`Files` on the operating system: the only module of the broker that opens, writes and syncs.

What lives here: file descriptors. What does not: any idea of what the bytes mean. Kafka's promise that acknowledged means
on disk ends in this module's `sync`.
"""

import fcntl
import os
import shutil
from collections.abc import Sequence
from pathlib import Path


class DirectoryInUse(RuntimeError):
    """Another process has the data directory open; the text names it."""


class OsFile:
    """An open file with its size kept at hand."""

    __slots__ = ("_fd", "_unnamed", "size")

    def __init__(self, path: Path) -> None:
        # A file whose name is not on disk is lost although its content was synced; the first sync sees to both, also for
        # a file that an earlier process made and never synced.
        self._unnamed: Path | None = path.parent
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.size = os.fstat(self._fd).st_size

    def append(self, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write the pieces at the end; what a failed write left behind is cut off again, or nothing more is written."""
        wanted = sum(len(piece) for piece in pieces)
        try:
            written = os.writev(self._fd, pieces)
            if written < wanted:
                rest = memoryview(b"".join(pieces))[written:]
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
        except OSError:
            self._cut_back()
            raise
        self.size += wanted

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._fd, self.size)
        except OSError:
            self.close()

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes from `position` on."""
        return os.pread(self._fd, size, position)

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        os.ftruncate(self._fd, size)
        self.size = size

    def sync(self) -> None:
        """Return when the content is on disk; a file that was closed meanwhile (its topic is gone) needs none."""
        descriptor = self._fd
        if descriptor < 0:
            return
        try:
            os.fdatasync(descriptor)
            if self._unnamed is not None:
                sync_directory(self._unnamed)
                self._unnamed = None
        except OSError:
            if self._fd >= 0:  # closed in between by the loop's thread is no failure of the disk
                raise

    def close(self) -> None:
        """Close without syncing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsFiles:
    """The tree below one data directory, locked against other processes while it is open."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)
        self.root.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._lock)
            raise DirectoryInUse(
                f"the data directory {root} is in use by process {holder}; stop that one or choose another --data"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Give the directory back."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def open(self, path: str) -> OsFile:
        """The file at `path`, made when it is not there."""
        return OsFile(self.root / path)

    def read_bytes(self, path: str) -> bytes | None:
        """A whole small file, None when it is not there."""
        try:
            return (self.root / path).read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, path: str, content: bytes) -> None:
        """Temporary file, sync, rename, sync of the directory."""
        target = self.root / path
        temporary = target.with_name(target.name + ".tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(target)
        sync_directory(target.parent)

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens when it is not there."""
        (self.root / path).unlink(missing_ok=True)

    def rename(self, old: str, new: str) -> None:
        """Rename durably."""
        target = self.root / new
        (self.root / old).rename(target)
        sync_directory(target.parent)

    def list(self, path: str) -> Sequence[str]:
        """The names in a directory, sorted; empty when it is not there."""
        try:
            return sorted(os.listdir(self.root / path))
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        """Make a directory durably."""
        target = self.root / path
        target.mkdir(exist_ok=True)
        sync_directory(target.parent)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it."""
        shutil.rmtree(self.root / path, ignore_errors=True)


def sync_directory(path: Path) -> None:
    """Return when the names in a directory are on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def volume(directory: str) -> tuple[int, int]:
    """How many bytes the volume of a directory has, and how many of them may still be written; -1 where it does not say."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return -1, -1
    return usage.total, usage.free
