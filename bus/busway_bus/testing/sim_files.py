"""`Files` in memory, which can lose what was never synced, as a power cut does.

What lives here: the simulated disk. A seeded `random.Random`-like source of numbers decides how much of the unsynced end of
each file survives a cut, so that a history can be run again. What does not: any idea of what the bytes mean.
"""

from collections.abc import Callable, Sequence


class SimFile:
    """One file: what was written, and how much of it is on disk."""

    __slots__ = ("_files", "closed", "content", "size", "synced")

    def __init__(self, files: "SimFiles") -> None:
        self._files = files
        self.content = bytearray()
        self.synced = b""
        self.size = 0
        self.closed = False

    def append(self, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write the pieces at the end."""
        self._files.check_disk()
        for piece in pieces:
            self.content += piece
        self.size = len(self.content)

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes from `position` on."""
        return bytes(self.content[position : position + size])

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        del self.content[size:]
        self.size = len(self.content)

    def sync(self) -> None:
        """Put the content on disk, or fail when `SimFiles.failing` is set."""
        self._files.check_disk()
        self.synced = bytes(self.content)

    def close(self) -> None:
        """Close without syncing."""
        self.closed = True

    def cut_power(self, pick: Callable[[int], int]) -> None:
        """Fall back to what is on disk and a part, chosen by `pick`, of what was appended since."""
        kept = self.synced
        if self.content[: len(kept)] == kept:
            kept = bytes(self.content[: len(kept) + pick(len(self.content) - len(kept) + 1)])
        self.content = bytearray(kept)
        self.size = len(kept)
        self.synced = kept


class SimFiles:
    """A tree in memory.

    Attributes:
        failing: when set, writes and syncs raise OSError, as a dying disk does.
    """

    def __init__(self) -> None:
        self._tree: dict[str, SimFile] = {}
        self._directories: set[str] = {"."}
        self.failing = False

    def check_disk(self) -> None:
        """Raise OSError when the disk is made to fail."""
        if self.failing:
            raise OSError(5, "simulated input/output error")

    def open(self, path: str) -> SimFile:
        """The file at `path`, made when it is not there."""
        self._parent(path)
        file = self._tree.get(path)
        if file is None:
            self.check_disk()
            file = self._tree[path] = SimFile(self)
        file.closed = False
        return file

    def read_bytes(self, path: str) -> bytes | None:
        """A whole small file, None when it is not there."""
        file = self._tree.get(path)
        return None if file is None else bytes(file.content)

    def replace(self, path: str, content: bytes) -> None:
        """Replace a small file durably."""
        self._parent(path)
        self.check_disk()
        file = SimFile(self)
        file.content = bytearray(content)
        file.size = len(content)
        file.synced = bytes(content)
        self._tree[path] = file

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens when it is not there."""
        self._tree.pop(path, None)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory."""
        moved = [path for path in self._tree if path == old or path.startswith(f"{old}/")]
        if not moved and old not in self._directories:
            raise FileNotFoundError(old)
        for path in moved:
            self._tree[new + path[len(old) :]] = self._tree.pop(path)
        if old in self._directories:
            self._directories.discard(old)
            self._directories.add(new)

    def list(self, path: str) -> Sequence[str]:
        """The names in a directory, sorted; empty when it is not there."""
        prefix = "" if path == "." else f"{path}/"
        names = [name for name in [*self._tree, *self._directories] if name.startswith(prefix) and name != "."]
        return sorted({name[len(prefix) :].partition("/")[0] for name in names})

    def make_directory(self, path: str) -> None:
        """Make a directory; nothing happens when it is there."""
        self._directories.add(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it."""
        self._directories.discard(path)
        for name in [name for name in self._tree if name.startswith(f"{path}/")]:
            del self._tree[name]

    def cut_power(self, pick: Callable[[int], int]) -> None:
        """Lose what was not synced; `pick(n)` is a number below n that says how much of each torn end survives."""
        for path in sorted(self._tree):
            self._tree[path].cut_power(pick)

    def _parent(self, path: str) -> None:
        directory = path.rpartition("/")[0]
        if directory and directory not in self._directories:
            raise FileNotFoundError(directory)
