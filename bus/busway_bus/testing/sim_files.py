"""`Files` in memory, which lose unsynced data and fail as disks do.

Here: the open files of a simulated disk, and its faults. The seed decides which unsynced pages and names survive a
power cut.
Not here: the cache (`sim_disk`), time (`sim_threads`).
"""

import errno
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from busway_bus.testing.sim_disk import Change, Content, Directory, Node, Pick, directories_below, size_of


class PowerCut(BaseException):
    """The power is cut, or the process killed, at this step. Code under test must not catch it."""


@dataclass(slots=True, kw_only=True)
class DiskFaults:
    """Faults and their probabilities.

    Attributes:
        reads, writes, syncs: of an EIO; data of a failed sync is never written, as on Linux.
        cold: that read data is not in memory.
        capacity: in bytes of content; more fail with ENOSPC.
        sync_s: shortest and longest duration of a sync.
    """

    reads: float = 0.0
    writes: float = 0.0
    syncs: float = 0.0
    cold: float = 0.0
    capacity: int | None = None
    sync_s: tuple[float, float] = (0.0, 0.0)


class SimLoan:
    __slots__ = ("_content", "_files", "_path", "descriptor")

    def __init__(self, files: "SimFiles", path: str, content: Content) -> None:
        self._files = files
        self._path = path
        self._content = content
        self.descriptor = -1

    def read(self, position: int, size: int) -> bytes:
        self._files.check_read()
        return bytes(self._content.cached[position : position + size])

    def read_now(self, position: int, size: int) -> bytes:
        if self._files.is_cold(self._path) or len(self._content.cached) < position + size:
            raise BlockingIOError(errno.EAGAIN, "simulated pages that are not in memory", self._path)
        return self.read(position, size)

    def in_memory(self, position: int, size: int) -> bool:
        return not self._files.is_cold(self._path)

    def warm(self, position: int, size: int) -> None:
        self._files.cold.discard(self._path)


class SimFile:
    __slots__ = (
        "_absent",
        "_content",
        "_directory",
        "_files",
        "_named",
        "_path",
        "_spoiled",
        "closed",
        "disposable",
        "size",
    )

    def __init__(self, files: "SimFiles", path: str, directory: Directory, content: Content) -> None:
        self._files = files
        self._path = path
        self._directory = directory
        self._content = content
        self._named = False
        self._spoiled: OSError | None = None
        self._absent = False
        self.size = len(content.cached)
        self.closed = False
        self.disposable = False

    @property
    def content(self) -> bytearray:
        """Its content; a test may damage it."""
        return self._content.cached

    def create_later(self) -> None:
        self._absent = True

    def append(self, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        self._check_open()
        if self._absent:
            self._files.name(self._directory, self._path, self._content)
            self._absent = False
        self._files.check_write(sum(map(len, pieces)))
        self._content.append(pieces)
        self.size = len(self._content.cached)

    def read(self, position: int, size: int) -> bytes:
        self._check_open()
        self._files.check_read()
        return bytes(self._content.cached[position : position + size])

    def read_now(self, position: int, size: int) -> bytes:
        if self._files.is_cold(self._path):
            raise BlockingIOError(errno.EAGAIN, "simulated pages that are not in memory", self._path)
        return self.read(position, size)

    def lend(self) -> SimLoan:
        self._check_open()
        return SimLoan(self._files, self._path, self._content)

    def truncate(self, size: int) -> None:
        self._check_open()
        if self._absent:
            return
        self._files.check_disk()
        self._content.truncate(size)
        self.size = len(self._content.cached)

    def rewrite(self, position: int) -> None:
        self._check_open()
        self._files.check_read()
        self._files.check_disk()
        self._content.rewrite(position)

    def sync(self) -> None:
        if self._spoiled is not None:
            raise self._spoiled
        if self.closed or self._absent:
            return
        try:
            self._files.check_sync()
        except OSError as problem:
            self._spoiled = problem
            self._content.dirty = set()
            raise
        self._content.sync()
        if not self._named:
            self._files.check_disk()
            self._directory.sync()
            self._named = True

    def close(self) -> None:
        self.closed = True

    def spoil(self, problem: OSError) -> None:
        self._spoiled = problem
        self.close()

    def _check_open(self) -> None:
        if self.closed:
            raise OSError(errno.EBADF, "the file is closed")


class SimFiles:
    """A tree in memory.

    Args:
        chance: draws the accesses that `faults` hits.

    Attributes:
        syncs: number of syncs, of files and of replaced small files.
        cold: paths of files not in memory until waited for.
        steps_left: disk steps before a `PowerCut`; it fails all later steps until `cut_power` or `power_on`.
        on_cut: called at that step.
        waits: called with the seconds of a sync.
    """

    def __init__(self, chance: Random | None = None) -> None:
        self._root = Directory()
        self._chance = chance
        self._guard = threading.RLock()
        self.failing = False
        self.failing_syncs = False
        self.faults = DiskFaults()
        self.syncs = 0
        self.cold: set[str] = set()
        self.steps_left: int | None = None
        self.on_cut: Callable[[], None] | None = None
        self.waits: Callable[[float], None] | None = None
        self._off = False

    # Faults

    def _hit(self, chance: float) -> bool:
        return bool(chance) and self._chance is not None and self._chance.random() < chance

    def check_disk(self) -> None:
        """Count a step; raise OSError by a fault, PowerCut at the end."""
        self._step()
        if self.failing or self._hit(self.faults.writes):
            raise OSError(errno.EIO, "simulated input/output error")

    def _step(self) -> None:
        if self._off:
            raise PowerCut
        if self.steps_left is not None:
            if self.steps_left == 0:
                self._off = True
                if self.on_cut is not None:
                    self.on_cut()
                raise PowerCut
            self.steps_left -= 1

    def check_write(self, size: int) -> None:
        self.check_disk()
        self._check_room(size)

    def _check_room(self, size: int) -> None:
        capacity = self.faults.capacity
        if capacity is not None and self.used() + size > capacity:
            raise OSError(errno.ENOSPC, "No space left on device")

    def check_read(self) -> None:
        if self._off:
            raise PowerCut
        if self._hit(self.faults.reads):
            raise OSError(errno.EIO, "simulated input/output error in a read")

    def is_cold(self, path: str) -> bool:
        return path in self.cold or self._hit(self.faults.cold)

    def check_sync(self) -> None:
        self._step()
        self.syncs += 1
        if self._chance is not None and self.waits is not None and self.faults.sync_s[1]:
            self.waits(self._chance.uniform(*self.faults.sync_s))
        if self.failing or self.failing_syncs or self._hit(self.faults.syncs):
            raise OSError(errno.EIO, "simulated input/output error in a sync")

    def used(self) -> int:
        return size_of(self._root)

    # The tree

    def _find(self, path: str) -> Node | None:
        node: Node | None = self._root
        if path != ".":
            for name in path.split("/"):
                node = node.names.get(name) if isinstance(node, Directory) else None
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return node

    def _place(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent or "."), name

    def open_later(self, path: str, size: int) -> SimFile:
        if not isinstance(self._find(path), Content):
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        return self.open(path)

    def create_later(self, path: str) -> SimFile:
        later = SimFile(self, path, self._place(path)[0], Content())
        later.create_later()
        return later

    def name(self, directory: Directory, path: str, content: Content) -> None:
        with self._guard:
            self.check_disk()
            Change((directory, path.rpartition("/")[2], content))

    def open(self, path: str) -> SimFile:
        with self._guard:
            directory, name = self._place(path)
            node = directory.names.get(name)
            if isinstance(node, Directory):
                raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
            if node is None:
                self.check_disk()
                node = Content()
                Change((directory, name, node))
            return SimFile(self, path, directory, node)

    def read_bytes(self, path: str) -> bytes | None:
        self.check_read()
        node = self._find(path)
        return bytes(node.cached) if isinstance(node, Content) else None

    def replace(self, path: str, content: bytes) -> None:
        with self._guard:
            directory, name = self._place(path)
            self.check_sync()
            self._check_room(len(content))
            file = Content()
            file.append([content])
            file.sync()
            Change((directory, name, file))
            self.check_disk()
            directory.sync()

    def remove(self, path: str) -> None:
        with self._guard:
            self.check_disk()
            try:
                directory, name = self._place(path)
            except FileNotFoundError:
                return
            if name in directory.names:
                Change((directory, name, None))

    def sync_directory(self, path: str) -> None:
        with self._guard:
            directory = self._directory(path)
            self.check_sync()
            directory.sync()

    def rename(self, old: str, new: str) -> None:
        with self._guard:
            target = self._move(old, new)
            self.check_disk()
            target.sync()

    def _move(self, old: str, new: str) -> Directory:
        source, old_name = self._place(old)
        target, new_name = self._place(new)
        node = source.names.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", old)
        self.check_disk()
        Change((source, old_name, None), (target, new_name, node))
        return target

    def rename_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        with self._guard:
            targets = [self._move(old, new) for old, new in pairs]
            for target in targets:
                self.check_disk()
                target.sync()

    def list(self, path: str) -> Sequence[str]:
        node = self._find(path)
        return sorted(node.names) if isinstance(node, Directory) else []

    def sizes(self, path: str) -> Mapping[str, int]:
        node = self._find(path)
        files = sorted(node.names.items()) if isinstance(node, Directory) else []
        return {name: len(file.cached) for name, file in files if isinstance(file, Content)}

    def make_directory(self, path: str) -> None:
        with self._guard:
            self._make(path)
            self.check_disk()
            self._place(path)[0].sync()

    def _make(self, path: str) -> None:
        parent, name = self._place(path)
        if name not in parent.names:
            self.check_disk()
            Change((parent, name, Directory()))

    def make_directories(self, names: Sequence[str]) -> None:
        with self._guard:
            for name in names:
                self._make(name)
            if names:
                self.check_disk()
                self._root.sync()

    def remove_tree(self, path: str) -> None:
        with self._guard:
            node = self._find(path)
            if isinstance(node, Directory):
                for name in sorted(node.names):
                    self.remove_tree(f"{path}/{name}")
            if node is not None:
                self.remove(path)

    # Power

    def cut_power(self, pick: Pick) -> None:
        """Lose unsynced data. `pick(n)` draws a number below n for the surviving part."""
        with self._guard:
            self.power_on()
            for directory in list(directories_below(self._root)):
                directory.cut_power(pick)
            self._root.fall_back(pick)

    def power_off(self) -> None:
        """Fail every step from now on: the process is dead."""
        self._off = True

    def power_on(self) -> None:
        """Allow steps again, with the page cache as it is."""
        self.steps_left = None
        self._off = False

    # `DataDirectory`

    def volume(self) -> tuple[int, int]:
        capacity = self.faults.capacity
        return (-1, -1) if capacity is None else (capacity, max(capacity - self.used(), 0))

    def connections_max(self) -> int:
        return 1_000_000

    def close(self) -> None:
        """Do nothing."""
