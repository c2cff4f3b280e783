"""`Files` on the operating system.

Here: all system calls on files; durability rests on `sync`.
Not here: the limit of open files (`descriptors`).
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from busway_bus.log.descriptors import FILES_SHARE, Descriptors, Pooled, raise_limit

_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
"""Linux read flag: EAGAIN instead of a wait for the disk. Elsewhere a read waits."""
_PROBED_BYTES: Final = 256 * 1024
"""Bytes per probed page: pages are evicted in large groups, and a probe costs as much as sending 10 KiB."""
_WARMED_BYTES: Final = 256 * 1024
_REWRITTEN_BYTES: Final = 1024 * 1024


class DirectoryInUse(RuntimeError):
    """The data directory is open in another process, named in the text."""


class OsLoan:
    """Loan of a file's descriptor, which stays open as long."""

    __slots__ = ("_file", "_pool", "descriptor")

    def __init__(self, file: "OsFile", pool: Descriptors) -> None:
        self._pool = pool
        self.descriptor = pool.take(file)
        self._file = file

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self.descriptor, size, position)

    def read_now(self, position: int, size: int) -> bytes | bytearray:
        """As `read`, but never waits for the disk.

        BlockingIOError: not all bytes are in memory, or the file is shorter.
        """
        data = bytearray(size)
        try:
            count = os.preadv(self.descriptor, [data], position, _NOWAIT)
        except OSError as problem:
            if problem.errno != errno.EOPNOTSUPP:  # a file system in memory may not know the question
                raise
            count = os.preadv(self.descriptor, [data], position)
        if count < size:
            raise BlockingIOError(errno.EAGAIN, "not all of it is in memory")
        return data

    def in_memory(self, position: int, size: int) -> bool:
        """Whether the last byte and one of each `_PROBED_BYTES` are in memory."""
        if not size:
            return True
        probe = [bytearray(1)]
        try:
            for place in range(position, position + size, _PROBED_BYTES):
                os.preadv(self.descriptor, probe, place, _NOWAIT)
            os.preadv(self.descriptor, probe, position + size - 1, _NOWAIT)
        except BlockingIOError:
            return False
        except OSError as problem:
            if problem.errno != errno.EOPNOTSUPP:  # a file system in memory may not know the question
                raise
        return True

    def warm(self, position: int, size: int) -> None:
        _advise(self.descriptor, position, size)
        for place in range(position, position + size, _WARMED_BYTES):
            os.pread(self.descriptor, min(_WARMED_BYTES, position + size - place), place)

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # `__init__` got a descriptor
            self._pool.give(self._file)


class OsFile(Pooled):
    """A file with its size in memory. The descriptor may be closed while unused."""

    __slots__ = ("__weakref__", "_absent", "_failed", "_guard", "_pool", "_unnamed", "disposable", "size")

    def __init__(self, path: Path, pool: Descriptors, size: int | None = None) -> None:
        super().__init__(path)
        self._pool = pool
        self._guard = pool.guard
        # A synced file is lost if its directory entry is not on disk. The first sync writes both, also for a file that an earlier
        # process created and never synced.
        self._unnamed: Path | None = path.parent
        self._failed: OSError | None = None
        self.disposable = False
        self._absent = False
        """Whether the first append creates it."""
        self.size = size or 0
        if size is not None:
            return
        try:
            self.size = os.fstat(pool.take(self, os.O_CREAT)).st_size
        finally:
            if self.users:
                pool.give(self)

    def create_later(self) -> None:
        self._absent = True

    def append(self, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        """Append the pieces. A failed write is truncated, else the file refuses all use."""
        size = sum(map(len, pieces))
        descriptor = self._take()
        try:
            written = os.writev(descriptor, pieces)
            if written < size:
                rest = memoryview(b"".join(pieces))[written:]
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
            self.size += size
            self.needed = not self.disposable
        except OSError:
            self._cut_back(descriptor)
            raise
        finally:
            self._pool.give(self)

    def _take(self) -> int:
        with self._guard:
            if self.descriptor >= 0 and not self.closed:
                self.users += 1
                return self.descriptor
        if self._absent:
            descriptor = self._pool.take(self, os.O_CREAT | os.O_TRUNC)
            self._absent = False
            return descriptor
        return self._pool.take(self)

    def _cut_back(self, descriptor: int) -> None:
        try:
            os.ftruncate(descriptor, self.size)
        except OSError as problem:
            self.spoil(problem)

    def read(self, position: int, size: int) -> bytes:
        descriptor = self._take()
        try:
            return os.pread(descriptor, size, position)
        finally:
            self._pool.give(self)

    def read_now(self, position: int, size: int) -> bytes:
        """As `OsLoan.read_now`, but a shorter file is no error."""
        descriptor = self._take()
        data = bytearray(min(size, max(0, self.size - position)))
        try:
            count = os.preadv(descriptor, [data], position, _NOWAIT) if data else 0
        except OSError as problem:
            if problem.errno != errno.EOPNOTSUPP:
                raise
            return os.pread(descriptor, size, position)
        finally:
            self._pool.give(self)
        if count < len(data):
            raise BlockingIOError(errno.EAGAIN, "not all of it is in memory", str(self.path))
        return bytes(data)

    def lend(self) -> OsLoan:
        """Return a loan for later reads, even after `close`."""
        return OsLoan(self, self._pool)

    def truncate(self, size: int) -> None:
        if self._absent:
            return
        descriptor = self._pool.take(self)
        try:
            os.ftruncate(descriptor, size)
            self.size = size
        finally:
            self._pool.give(self)

    def rewrite(self, position: int) -> None:
        """Rewrite the content from `position` in place.

        After a failed write-back the system marks pages clean that are not on disk.
        """
        descriptor = self._pool.open(self.path, os.O_RDWR)  # the pooled descriptor is opened with O_APPEND
        try:
            for place in range(position, self.size, _REWRITTEN_BYTES):
                rest, at = memoryview(os.pread(descriptor, min(_REWRITTEN_BYTES, self.size - place), place)), place
                while rest:
                    written = os.pwrite(descriptor, rest, at)
                    rest, at = rest[written:], at + written
        finally:
            os.close(descriptor)

    def sync(self) -> None:
        """Wait until the content is on disk, or the file is closed.

        An OSError is final: the system may have dropped the pages and report success for the next sync.
        """
        if self._failed is not None:
            raise self._failed.with_traceback(None)  # a traceback grows with each raise
        if self._absent:
            return
        try:
            descriptor = self._pool.take(self)
        except OSError:
            if self.closed and self._failed is None:
                return
            raise
        try:
            self.needed = False  # a later append sets it again
            os.fdatasync(descriptor)
            if self._unnamed is not None:
                sync_directory(self._unnamed, self._pool)
                self._unnamed = None
        except OSError as problem:
            self._failed = problem
            raise
        finally:
            self._pool.give(self)

    def close(self) -> None:
        self._pool.close(self)

    def spoil(self, problem: OSError) -> None:
        self._failed = problem
        self.close()


class OsFiles:
    """Files below a data directory, locked against other processes until `close`."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)
        self._below = f"{root}{os.sep}"
        """Prefix of paths where a `Path` would take longer than the system call."""
        self.descriptors = Descriptors(raise_limit() // FILES_SHARE)
        self._by_path: WeakValueDictionary[Path, OsFile] = WeakValueDictionary()
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
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def volume(self) -> tuple[int, int]:
        try:
            usage = shutil.disk_usage(self.root)
        except OSError:
            return -1, -1
        return usage.total, usage.free

    def connections_max(self) -> int:
        return self.descriptors.left

    def open(self, path: str) -> OsFile:
        return self._opened(path, None)

    def open_later(self, path: str, size: int) -> OsFile:
        return self._opened(path, size)

    def create_later(self, path: str) -> OsFile:
        later = self._opened(path, 0)
        later.create_later()
        return later

    def _opened(self, path: str, size: int | None) -> OsFile:
        opened = OsFile(self.root / path, self.descriptors, size)
        self._by_path[opened.path] = opened
        return opened

    def read_bytes(self, path: str) -> bytes | None:
        try:
            with open(self._below + path, "rb", buffering=0) as file:
                return file.readall()
        except FileNotFoundError:
            return None

    def replace(self, path: str, content: bytes) -> None:
        target = self.root / path
        temporary = target.with_name(target.name + ".tmp")
        descriptor = self.descriptors.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(target)
        sync_directory(target.parent, self.descriptors)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._below + path)

    def sync_directory(self, path: str) -> None:
        sync_directory(self.root / path, self.descriptors)

    def rename(self, old: str, new: str) -> None:
        """Rename durably. An open file gets the new name."""
        source, target = self.root / old, self.root / new
        opened = self._by_path.get(source)
        if opened is None or opened.closed:
            source.rename(target)
        else:
            self.descriptors.take(opened)  # holds the descriptor, so that no thread reopens the old name meanwhile
            try:
                source.rename(target)
                opened.path = target
                self._by_path[target] = opened
            finally:
                self.descriptors.give(opened)
        sync_directory(target.parent, self.descriptors)

    def rename_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Rename durably, with one sync for each directory."""
        for old, new in pairs:
            os.rename(self._below + old, self._below + new)
        for parent in {(self.root / new).parent for _, new in pairs}:
            sync_directory(parent, self.descriptors)

    def list(self, path: str) -> Sequence[str]:
        try:
            return sorted(os.listdir(self._below + path))
        except FileNotFoundError:
            return []

    def sizes(self, path: str) -> Mapping[str, int]:
        try:
            with os.scandir(self._below + path) as entries:
                return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
        except FileNotFoundError:
            return {}

    def make_directory(self, path: str) -> None:
        target = self.root / path
        target.mkdir(exist_ok=True)
        sync_directory(target.parent, self.descriptors)

    def make_directories(self, names: Sequence[str]) -> None:
        for name in names:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._below + name)
        if names:
            sync_directory(self.root, self.descriptors)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(self.root / path, ignore_errors=True)


def _advise(descriptor: int, position: int, size: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, position, size, os.POSIX_FADV_WILLNEED)


def sync_directory(path: Path, descriptors: Descriptors) -> None:
    descriptor = descriptors.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
