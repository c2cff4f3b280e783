"""Files and names on a simulated disk, or only in its cache.

Here: pages and directories, and the effect of a power cut.
Not here: paths, open files and faults (`sim_files`).
"""

from collections.abc import Callable, Sequence
from typing import Final

Pick = Callable[[int], int]
"""Returns a number below its argument; 0 loses all unsynced data."""
PAGE: Final = 4096
"""Unit of disk writes, in bytes."""
_TORN_WAYS: Final = 3


class Content:
    """A file's content: cached bytes, dirty pages, bytes on disk."""

    __slots__ = ("cached", "dirty", "on_disk")

    def __init__(self) -> None:
        self.cached = bytearray()
        self.dirty: set[int] = set()
        self.on_disk = bytearray()

    def append(self, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        first = len(self.cached) // PAGE
        for piece in pieces:
            self.cached += piece
        self.dirty.update(range(first, (len(self.cached) + PAGE - 1) // PAGE))

    def rewrite(self, position: int) -> None:
        self.dirty.update(range(position // PAGE, (len(self.cached) + PAGE - 1) // PAGE))

    def truncate(self, size: int) -> None:
        del self.cached[size:]
        self.dirty = {page for page in self.dirty if page * PAGE < size}

    def sync(self) -> None:
        self._write_back(self.dirty, len(self.cached))
        self.dirty = set()

    def _write_back(self, pages: set[int], size: int) -> None:
        on_disk = self.on_disk
        del on_disk[size:]
        on_disk.extend(bytes(size - len(on_disk)))
        for page in pages:
            start, end = page * PAGE, min(page * PAGE + PAGE, size)
            if start < end:
                on_disk[start:end] = self.cached[start:end]

    def cut_power(self, pick: Pick) -> None:
        """Lose unsynced data, except a torn end, random pages, or the length."""
        written, size = len(self.on_disk), len(self.cached)
        if self.dirty or written != size:
            way = pick(_TORN_WAYS)
            length = written + pick(size - written + 1) if size >= written else (size if pick(2) else written)
            pages = sorted(self.dirty)
            if way == 1:
                pages = [page for page in pages if pick(2)]
            elif way == 2:
                pages = []
            if size >= written or length == size:
                self._write_back(set(pages), length)
        self.cached = bytearray(self.on_disk)
        self.dirty = set()


class Directory:
    """A directory: names in the cache and on disk, with changes in order."""

    __slots__ = ("changes", "names", "on_disk")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.on_disk: dict[str, Node] = {}
        self.changes: list[Change] = []

    def sync(self) -> None:
        changes, self.changes = self.changes, []
        for change in changes:
            change.settle()

    def cut_power(self, pick: Pick) -> None:
        for change in self.changes[: pick(len(self.changes) + 1)]:
            change.settle()
        self.changes = []

    def fall_back(self, pick: Pick) -> None:
        self.names = dict(self.on_disk)
        for name in sorted(self.names):
            node = self.names[name]
            if isinstance(node, Directory):
                node.fall_back(pick)
            else:
                node.cut_power(pick)


Node = Content | Directory


class Change:
    """Names that change together, on disk all or none."""

    __slots__ = ("_entries", "_settled")

    def __init__(self, *entries: tuple[Directory, str, Node | None]) -> None:
        self._entries = entries
        self._settled = False
        for directory, name, node in entries:
            if node is None:
                directory.names.pop(name, None)
            else:
                directory.names[name] = node
            if not directory.changes or directory.changes[-1] is not self:
                directory.changes.append(self)

    def settle(self) -> None:
        if not self._settled:
            self._settled = True
            for directory, name, node in self._entries:
                if node is None:
                    directory.on_disk.pop(name, None)
                else:
                    directory.on_disk[name] = node


def size_of(node: Node) -> int:
    if isinstance(node, Content):
        return len(node.cached)
    return sum(map(size_of, node.names.values()))


def directories_below(directory: Directory) -> "list[Directory]":
    below: dict[int, Directory] = {}
    for names in (directory.on_disk, directory.names):
        for name in sorted(names):
            node = names[name]
            if isinstance(node, Directory):
                below[id(node)] = node
    return [directory, *(nested for child in below.values() for nested in directories_below(child))]
