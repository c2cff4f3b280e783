"""An immutable sorted map; an update shares nearly all content.

Here: `SortedMap`, for images that differ little. Keys are sorted, in blocks of at most `BLOCK`; a change copies one
block and the list of blocks: a few hundred pointers for ten thousand topics. The order depends on the keys alone.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, Protocol, TypeVar, overload


class Comparable(Protocol):
    def __lt__(self, other: Any, /) -> bool:
        """Whether it sorts before the other."""


K = TypeVar("K", bound=Comparable)
V = TypeVar("V")
D = TypeVar("D")
BLOCK: Final = 64
"""Most keys in a block."""
MANY: Final = 8
"""If more than one in this many keys change, the map is rebuilt, which costs less."""
_Block = tuple[tuple[K, ...], tuple[V, ...]]


class SortedMap(Mapping[K, V]):
    __slots__ = ("_blocks", "_firsts", "_size")

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        ordered: list[Any] = sorted(dict(items).items(), key=itemgetter(0))
        half = BLOCK // 2
        self._blocks: tuple[_Block[K, V], ...] = tuple(
            (tuple(key for key, _ in block), tuple(value for _, value in block))
            for block in (ordered[at : at + half] for at in range(0, len(ordered), half))
        )
        self._firsts: tuple[Any, ...] = tuple(keys[0] for keys, _ in self._blocks)
        self._size = len(ordered)

    def __getitem__(self, key: K) -> V:
        at = bisect_right(self._firsts, key) - 1
        if at >= 0:
            keys, values = self._blocks[at]
            place = bisect_left(keys, key)
            if place < len(keys) and keys[place] == key:
                return values[place]
        raise KeyError(key)

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D, /) -> V | D: ...
    def get(self, key: K, default: object = None, /) -> object:
        """Return a value, or the default. A missing key raises no exception, as a request may name many."""
        at = bisect_right(self._firsts, key) - 1
        if at >= 0:
            keys, values = self._blocks[at]
            place = bisect_left(keys, key)
            if place < len(keys) and keys[place] == key:
                return values[place]
        return default

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        return (key for keys, _ in self._blocks for key in keys)

    def __repr__(self) -> str:
        return f"SortedMap({dict(self)!r})"

    def pairs(self) -> Iterator[tuple[K, V]]:
        """Iterate over sorted keys and values; unlike `items`, without lookups."""
        return (pair for keys, values in self._blocks for pair in zip(keys, values, strict=True))

    def since(self, key: K) -> Iterator[K]:
        """Iterate over the keys from this one on, existing or not."""
        first = max(bisect_right(self._firsts, key) - 1, 0)
        for partition, (keys, _) in enumerate(self._blocks[first:]):
            yield from keys if partition else keys[bisect_left(keys, key) :]

    def updated(self, changes: Mapping[K, V | None]) -> "SortedMap[K, V]":
        """Return a map with these values set, or removed if None."""
        if len(changes) * MANY > self._size:
            items: dict[K, Any] = dict(self.pairs())
            items.update(changes)
            return SortedMap({key: value for key, value in items.items() if value is not None})
        changed = self
        for key, value in changes.items():
            changed = changed._without(key) if value is None else changed._with(key, value)
        return changed

    def _with(self, key: K, value: V) -> "SortedMap[K, V]":
        at = max(bisect_right(self._firsts, key) - 1, 0)
        keys, values = self._blocks[at] if self._blocks else ((), ())
        place = bisect_left(keys, key)
        if place < len(keys) and keys[place] == key:
            return self._replaced(at, [(keys, (*values[:place], value, *values[place + 1 :]))], 0)
        keys, values = (*keys[:place], key, *keys[place:]), (*values[:place], value, *values[place:])
        if len(keys) <= BLOCK:
            return self._replaced(at, [(keys, values)], 1)
        half = len(keys) // 2
        return self._replaced(at, [(keys[:half], values[:half]), (keys[half:], values[half:])], 1)

    def _without(self, key: K) -> "SortedMap[K, V]":
        if key not in self:
            return self
        at = bisect_right(self._firsts, key) - 1
        keys, values = self._blocks[at]
        place = bisect_left(keys, key)
        left = (keys[:place] + keys[place + 1 :], values[:place] + values[place + 1 :])
        return self._replaced(at, [left] if left[0] else [], -1)

    def _replaced(self, at: int, blocks: list[_Block[K, V]], more: int) -> "SortedMap[K, V]":
        changed: SortedMap[K, V] = SortedMap.__new__(SortedMap)
        changed._blocks = self._blocks[:at] + tuple(blocks) + self._blocks[at + 1 :]
        changed._firsts = self._firsts[:at] + tuple(keys[0] for keys, _ in blocks) + self._firsts[at + 1 :]
        changed._size = self._size + more
        return changed
