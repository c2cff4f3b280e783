"""Limit of open files, and a pool of descriptors.

Here: the process limit, and a bounded pool for all threads; idle descriptors are closed and reopened on demand.
Not here: reading and writing (`os_files`).

A file with unsynced bytes stays open: write-back errors may be lost once all its descriptors are closed.
"""

import errno
import os
import resource
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

from busway_bus.kernel.limits import DESCRIPTORS_SCANNED_MAX, FILES_MIN, OTHER_DESCRIPTORS_MAX

UNLIMITED: Final = 1_048_576
"""Assumed limit if the system reports none."""
FILES_SHARE: Final = 2
"""One of this many descriptors is for files, the others for connections."""
_OUT: Final = frozenset({errno.EMFILE, errno.ENFILE})


def raise_limit() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (hard, UNLIMITED, 10_240):  # macOS reports no hard limit and accepts at most OPEN_MAX
        if soft == resource.RLIM_INFINITY or 0 <= limit <= soft:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (ValueError, OSError):
            continue
        soft = limit
        break
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


class Pooled:
    """A file with a pooled descriptor. The pool owns all attributes but `path` and `needed`.

    `needed`: stay open while unused.
    """

    __slots__ = ("closed", "descriptor", "needed", "path", "recent", "users")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = -1
        self.users = 0
        self.recent = False
        self.needed = False
        self.closed = False


class Descriptors:
    """Pool of open descriptors: at most `limit`, unless all are in use.

    `guard` protects `users` of a file, and is never held during disk I/O. It is reentrant: a loan may be
    garbage-collected in the thread that holds it.
    """

    def __init__(self, limit: int) -> None:
        self.limit = max(limit, FILES_MIN)
        self.guard = threading.RLock()
        self._open: OrderedDict[Pooled, None] = OrderedDict()

    @property
    def left(self) -> int:
        """Number of descriptors for connections."""
        return max(FILES_SHARE * self.limit - self.limit - OTHER_DESCRIPTORS_MAX, OTHER_DESCRIPTORS_MAX)

    def __len__(self) -> int:
        return len(self._open)

    def take(self, file: Pooled, flags: int = 0) -> int:
        """Return the descriptor of a file, open until `give`.

        OSError: the file is closed or cannot be opened, or all of the limit are in use.
        """
        while True:
            with self.guard:
                if file.closed:
                    raise OSError(errno.EBADF, "the file is closed", str(file.path))
                if file.descriptor >= 0:
                    file.users += 1
                    return file.descriptor
            path = file.path
            try:
                opened = self.open(path, os.O_RDWR | os.O_APPEND | flags)
            except FileNotFoundError:
                if file.path == path:
                    raise
                continue  # it was renamed meanwhile
            with self.guard:
                if file.descriptor < 0 and not file.closed:
                    file.descriptor = opened
                    file.users += 1
                    self._open[file] = None
                    if len(self._open) > self.limit:
                        self._spare(DESCRIPTORS_SCANNED_MAX)
                    return opened
            os.close(opened)  # another thread was faster

    def give(self, file: Pooled) -> None:
        with self.guard:
            file.users -= 1
        file.recent = True
        if file.closed:
            self.settle(file)

    def settle(self, file: Pooled) -> None:
        with self.guard:
            if not file.users:
                self._shut(file)

    def close(self, file: Pooled) -> None:
        with self.guard:
            if not file.closed:
                file.closed = True
                if not file.users:
                    self._shut(file)

    def open(self, path: Path, flags: int) -> int:
        """Open a descriptor owned by the caller; errors as `take`.

        At the limit an unused pooled one is closed.
        """
        while True:
            try:
                return os.open(path, os.O_CLOEXEC | flags, 0o644)
            except OSError as problem:
                if problem.errno not in _OUT:
                    raise
                with self.guard:
                    spared = self._spare(2 * len(self._open))
                if not spared:
                    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
                    raise OSError(
                        problem.errno,
                        f"no file can be opened: the limit of open files is {limit}, and all are in use; raise it (ulimit -n)",
                        str(path),
                    ) from None

    def _spare(self, scanned_max: int) -> bool:
        """Close files not used since the last scan."""
        spared = False
        for _ in range(min(scanned_max, 2 * len(self._open))):
            file = next(iter(self._open))
            if file.users or file.needed or file.recent:
                file.recent = False
                self._open.move_to_end(file)
                continue
            del self._open[file]
            os.close(file.descriptor)
            file.descriptor = -1
            spared = True
            if len(self._open) <= self.limit:
                break
        return spared

    def _shut(self, file: Pooled) -> None:
        if file.descriptor >= 0:
            descriptor, file.descriptor = file.descriptor, -1
            del self._open[file]
            os.close(descriptor)
