"""How many files are open at once.

What lives here: the process's limit, raised as far as it goes, and a bounded set of descriptors for very many files: one that was not
used for long is closed and opened again when it is wanted, from any thread. What does not: reading and writing (`os_files`).

A file with bytes that were written and not synced stays open: what the system finds out about them in between is told to those who have
the file open, and might be forgotten when nobody has.
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
"""What counts as the limit where the system names none."""
FILES_SHARE: Final = 2
"""One descriptor in so many is for files, the others are for connections."""
_OUT: Final = frozenset({errno.EMFILE, errno.ENFILE})


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one; answers what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (hard, UNLIMITED, 10_240):  # macOS names no hard limit and takes no more than OPEN_MAX
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
    """A file whose descriptor comes from a pool; its attributes are the pool's, but for `path` and `needed`.

    Attributes:
        needed: whether it has to stay open although nobody uses it.
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
    """Open descriptors, at most `limit` of them as long as any can be spared.

    Attributes:
        guard: held for moments, never while the disk is waited for; `users` of a file changes under it alone. A loan may end wherever
            Python lets go of it, in the middle of this too, so the same thread may take it twice.
    """

    def __init__(self, limit: int) -> None:
        self.limit = max(limit, FILES_MIN)
        self.guard = threading.RLock()
        self._open: OrderedDict[Pooled, None] = OrderedDict()

    @property
    def left(self) -> int:
        """How many connections there may be beside them."""
        return max(FILES_SHARE * self.limit - self.limit - OTHER_DESCRIPTORS_MAX, OTHER_DESCRIPTORS_MAX)

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def take(self, file: Pooled, flags: int = 0) -> int:
        """The descriptor of a file, which stays open until `give`.

        Raises:
            OSError: the file is closed or cannot be opened; too many are open and none can be spared.
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
                continue  # it was given another name meanwhile
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
        """The descriptor is not used any more, for now."""
        with self.guard:
            file.users -= 1
        file.recent = True
        if file.closed:
            self.settle(file)

    def settle(self, file: Pooled) -> None:
        """A user of a file that was closed meanwhile is done with it."""
        with self.guard:
            if not file.users:
                self._shut(file)

    def close(self, file: Pooled) -> None:
        """Close a file for good, as soon as nobody uses it."""
        with self.guard:
            if not file.closed:
                file.closed = True
                if not file.users:
                    self._shut(file)

    def open(self, path: Path, flags: int) -> int:
        """A descriptor that is the caller's to close; where there are no more, one that nobody uses is closed for it.

        Raises:
            OSError: it cannot be opened; none can be spared.
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
        """Close files that were not used since they were last looked at; answers whether any was."""
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
