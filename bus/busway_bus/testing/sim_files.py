"""`Files` in memory, which can lose what was never synced, as a power cut does.

What lives here: the simulated disk. A seeded `random.Random`-like source of numbers decides how much of the unsynced end of
each file survives a cut, whether a file that was never synced is there at all, and whether one that was removed is there again when
its directory was not synced since, so that a history can be run again. Renames are durable at once. What does not: any idea of what
the bytes mean.
"""

from collections.abc import Callable, Mapping, Sequence


class PowerCut(BaseException):
    """The power goes at this step; no code of ours may catch it and carry on."""


class SimFile:
    """One file: what was written, and how much of it is on disk; `synced` is None until its name is on disk too."""

    __slots__ = ("_files", "_path", "_spoiled", "closed", "content", "descriptor", "disposable", "size", "synced")

    def __init__(self, files: "SimFiles", path: str) -> None:
        self._files = files
        self._path = path
        self.content = bytearray()
        self.synced: bytes | None = None
        self._spoiled: OSError | None = None
        self.size = 0
        self.closed = False
        self.disposable = False
        self.descriptor = -1

    def append(self, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write the pieces at the end."""
        self._files.check_disk()
        for piece in pieces:
            self.content += piece
        self.size = len(self.content)

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes from `position` on."""
        return bytes(self.content[position : position + size])

    def read_now(self, position: int, size: int) -> bytes:
        """As `read`: all of it is in memory, unless `SimFiles.cold` names the file.

        Raises:
            BlockingIOError: it does.
        """
        if self._path in self._files.cold:
            raise BlockingIOError(11, "simulated pages that are not in memory", self._path)
        return self.read(position, size)

    def in_memory(self, position: int, size: int) -> bool:
        """Whether `SimFiles.cold` does not name the file."""
        return self._path not in self._files.cold

    def warm(self, position: int, size: int) -> None:
        """The file is in memory from now on."""
        self._files.cold.discard(self._path)

    def lend(self) -> "SimFile":
        """The file itself: what is in memory can always be read."""
        return self

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        del self.content[size:]
        self.size = len(self.content)

    def sync(self) -> None:
        """Put the content on disk, or fail when `SimFiles` is made to."""
        if self._spoiled is not None:
            raise self._spoiled
        self._files.check_sync()
        if self.synced is None:
            self._files.sync_names(self._path)
        self.synced = bytes(self.content)

    def close(self) -> None:
        """Close without syncing."""
        self.closed = True

    def spoil(self, problem: OSError) -> None:
        """Close, and let every sync from now on fail."""
        self._spoiled = problem
        self.close()

    def cut_power(self, pick: Callable[[int], int]) -> bool:
        """Fall back to what is on disk and a part, chosen by `pick`, of what was appended since; False: the file is gone."""
        if self.synced is None and pick(2) == 0:
            return False
        kept = self.synced or b""
        if self.content[: len(kept)] == kept:
            kept = bytes(self.content[: len(kept) + pick(len(self.content) - len(kept) + 1)])
        self.content = bytearray(kept)
        self.size = len(kept)
        self.synced = kept
        return True


class SimFiles:
    """A tree in memory.

    Attributes:
        failing: when set, writes and syncs raise OSError, as a dying disk does.
        failing_syncs: when set, only syncs do.
        syncs: how many waits for the disk there were, of files and of small files replaced.
        cold: paths of files that are not in memory, until somebody waits for them.
        steps_left: when set, the power goes (`PowerCut`) at the step on the disk after so many more.
    """

    def __init__(self) -> None:
        self._tree: dict[str, SimFile] = {}
        self._removed: dict[str, SimFile] = {}
        self._directories: set[str] = {"."}
        self.failing = False
        self.failing_syncs = False
        self.syncs = 0
        self.cold: set[str] = set()
        self.steps_left: int | None = None

    def check_disk(self) -> None:
        """Count a step; raise OSError when the disk is made to fail, PowerCut when the steps are used up."""
        if self.steps_left is not None:
            if self.steps_left == 0:
                raise PowerCut
            self.steps_left -= 1
        if self.failing:
            raise OSError(5, "simulated input/output error")

    def check_sync(self) -> None:
        """Count a wait for the disk; raise OSError when syncs are made to fail."""
        self.check_disk()
        self.syncs += 1
        if self.failing_syncs:
            raise OSError(5, "simulated input/output error in a sync")

    def open_later(self, path: str, size: int) -> SimFile:
        """The file at `path`: there is nothing to put off."""
        return self.open(path)

    def open(self, path: str) -> SimFile:
        """The file at `path`, made when it is not there."""
        self._parent(path)
        file = self._tree.get(path)
        if file is None:
            self.check_disk()
            file = self._tree[path] = SimFile(self, path)
        file.closed = False
        return file

    def read_bytes(self, path: str) -> bytes | None:
        """A whole small file, None when it is not there."""
        file = self._tree.get(path)
        return None if file is None else bytes(file.content)

    def replace(self, path: str, content: bytes) -> None:
        """Replace a small file durably."""
        self._parent(path)
        self.check_sync()
        file = SimFile(self, path)
        file.content = bytearray(content)
        file.size = len(content)
        file.synced = bytes(content)
        self._tree[path] = file
        self.sync_names(path)

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens when it is not there."""
        self.check_disk()
        file = self._tree.pop(path, None)
        if file is not None and file.synced is not None:
            self._removed[path] = file

    def sync_directory(self, path: str) -> None:
        """Put the names in a directory on disk, and what was removed from it."""
        self.check_sync()
        self.sync_names(f"{path}/" if path != "." else "")

    def sync_names(self, path: str) -> None:
        """What is removed beside `path` stays so."""
        directory = path.rpartition("/")[0]
        self._removed = {
            removed: file for removed, file in self._removed.items() if removed.rpartition("/")[0] != directory
        }

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory."""
        moved = [path for path in self._tree if path == old or path.startswith(f"{old}/")]
        if not moved and old not in self._directories:
            raise FileNotFoundError(old)
        self.check_disk()
        self.sync_names(new)
        for path in moved:
            self._tree[new + path[len(old) :]] = self._tree.pop(path)
        if old in self._directories:
            self._directories.discard(old)
            self._directories.add(new)

    def rename_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Rename several."""
        for old, new in pairs:
            self.rename(old, new)

    def list(self, path: str) -> Sequence[str]:
        """The names in a directory, sorted; empty when it is not there."""
        prefix = "" if path == "." else f"{path}/"
        names = [name for name in [*self._tree, *self._directories] if name.startswith(prefix) and name != "."]
        return sorted({name[len(prefix) :].partition("/")[0] for name in names})

    def sizes(self, path: str) -> Mapping[str, int]:
        """The files in a directory and their sizes; empty when it is not there."""
        files = [(name, self._tree.get(name if path == "." else f"{path}/{name}")) for name in self.list(path)]
        return {name: file.size for name, file in files if file is not None}

    def make_directory(self, path: str) -> None:
        """Make a directory; nothing happens when it is there."""
        self._directories.add(path)

    def make_directories(self, names: Sequence[str]) -> None:
        """Make several directories below the root."""
        for name in names:
            self.make_directory(name)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it."""
        self._directories.discard(path)
        self.sync_names(f"{path}/")
        for name in [name for name in self._tree if name.startswith(f"{path}/")]:
            del self._tree[name]

    def cut_power(self, pick: Callable[[int], int]) -> None:
        """Lose what was not synced; `pick(n)` is a number below n that says how much of each torn end survives."""
        self.steps_left = None
        for path, file in sorted(self._removed.items()):
            if path not in self._tree and pick(2) == 0:
                self._tree[path] = file
        self._removed = {}
        for path in sorted(self._tree):
            if not self._tree[path].cut_power(pick):
                del self._tree[path]

    def volume(self) -> tuple[int, int]:
        """It does not say."""
        return -1, -1

    def connections_max(self) -> int:
        """Enough."""
        return 1_000_000

    def close(self) -> None:
        """Give the directory back."""

    def _parent(self, path: str) -> None:
        directory = path.rpartition("/")[0]
        if directory and directory not in self._directories:
            raise FileNotFoundError(directory)
