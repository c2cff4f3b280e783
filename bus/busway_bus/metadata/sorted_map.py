"""A map that is never changed: a change makes another one, which shares nearly everything with it.

What lives here: `SortedMap`, for pictures of which each differs little from the one before. Keys lie in order, in blocks of at most
`BLOCK`; a change copies one block and the list of blocks, so that one topic among ten thousand costs what a few hundred pointers do.
Order comes from the keys alone, so that whoever walks through a picture sees the same in every process. What does not: what is in it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeVar, overload


class Comparable(Protocol):
    """A key: of two that differ one is less."""

    def __lt__(self, other: Any, /) -> bool:
        """Whether it comes before the other."""


K = TypeVar("K", bound=Comparable)
V = TypeVar("V")
D = TypeVar("D")
BLOCK: Final = 64
"""Keys in one block at most: of more it is split."""
MANY: Final = 8
"""Where more than one key of so many changes, the map is built anew: that costs less than so many copies of blocks."""
_Block = tuple[tuple[K, ...], tuple[V, ...]]


class SortedMap(Mapping[K, V]):
    """A mapping whose keys can be compared with each other; give it the items that it should have."""

    __slots__ = ("_blocks", "_firsts", "_size")

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        ordered: list[Any] = sorted(dict(items).items(), key=lambda item: item[0])
        half = BLOCK // 2
        self._blocks: tuple[_Block[K, V], ...] = tuple(
            (tuple(key for key, _ in block), tuple(value for _, value in block))
            for block in (ordered[at : at + half] for at in range(0, len(ordered), half))
        )
        self._firsts: tuple[Any, ...] = tuple(keys[0] for keys, _ in self._blocks)
        self._size = len(ordered)

    def __getitem__(self, key: K) -> V:
        """The value of a key."""
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
        """The value of a key, or the default: what is not there costs no exception, as a request may name very much of that."""
        at = bisect_right(self._firsts, key) - 1
        if at >= 0:
            keys, values = self._blocks[at]
            place = bisect_left(keys, key)
            if place < len(keys) and keys[place] == key:
                return values[place]
        return default

    def __len__(self) -> int:
        """How many keys there are."""
        return self._size

    def __iter__(self) -> Iterator[K]:
        """The keys in their order."""
        return (key for keys, _ in self._blocks for key in keys)

    def __repr__(self) -> str:
        """As a dict is shown."""
        return f"SortedMap({dict(self)!r})"

    def pairs(self) -> Iterator[tuple[K, V]]:
        """The keys with their values, in their order; unlike `items`, nothing is looked up for each."""
        return (pair for keys, values in self._blocks for pair in zip(keys, values, strict=True))

    def since(self, key: K) -> Iterator[K]:
        """The keys from this one on, in their order, whether it is there or not."""
        first = max(bisect_right(self._firsts, key) - 1, 0)
        for number, (keys, _) in enumerate(self._blocks[first:]):
            yield from keys if number else keys[bisect_left(keys, key) :]

    def updated(self, changes: Mapping[K, V | None]) -> "SortedMap[K, V]":
        """The map in which each of these keys has its value, or is gone where that is None; with very many, it is built anew."""
        if len(changes) * MANY > self._size:
            items: dict[K, Any] = {**self, **changes}
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
        """This map with other blocks in the place of one, and so many keys more."""
        changed: SortedMap[K, V] = SortedMap.__new__(SortedMap)
        changed._blocks = self._blocks[:at] + tuple(blocks) + self._blocks[at + 1 :]
        changed._firsts = self._firsts[:at] + tuple(keys[0] for keys, _ in blocks) + self._firsts[at + 1 :]
        changed._size = self._size + more
        return changed
