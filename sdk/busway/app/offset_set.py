"""Finished records of a partition, where they do not finish in order.

Here: a set of offsets as a prefix and runs, and its text in an offset's metadata.
Not here: committing it (`handling.assigned_partition`, `dead_letters.replay`).

The text `1;3+2,5+1` means: version 1; from the committed offset, three are not done, then two are; five are not, then
one is.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import ClassVar, Final

MAX_TEXT: Final = 4000
"""Characters that brokers keep with an offset; the default of `offset.metadata.max.bytes` is 4096."""
_VERSION: Final = "1;"


class OffsetSet:
    """Offsets of one partition.

    Args:
        below: every offset under this one is in the set.
        runs: further ones as [first, end); sorted, disjoint and not adjacent, also to `below`.
    """

    def __init__(self, below: int = 0, runs: Iterable[tuple[int, int]] = ()) -> None:
        self.below: int = below
        self._runs = list(runs)

    def __contains__(self, offset: int) -> bool:
        if offset < self.below:
            return True
        index = bisect_right(self._runs, offset, key=_first)
        return index > 0 and offset < self._runs[index - 1][1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetSet) and (self.below, self._runs) == (other.below, other._runs)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # it grows

    def __repr__(self) -> str:
        return f"OffsetSet({self.below}, {self._runs})"

    @property
    def end(self) -> int:
        return self._runs[-1][1] if self._runs else self.below

    def from_offset(self, offset: int) -> list[tuple[int, int]]:
        return [(max(first, offset), end) for first, end in self._runs if end > offset]

    def copy(self) -> "OffsetSet":
        return OffsetSet(self.below, self._runs)

    def add(self, first: int, end: int | None = None) -> None:
        self._join([(first, first + 1 if end is None else end)])

    def update(self, other: "OffsetSet") -> None:
        self._join([(0, other.below), *other._runs])

    def _join(self, more: list[tuple[int, int]]) -> None:
        joined: list[tuple[int, int]] = [(0, self.below)]
        for first, end in sorted([*self._runs, *(run for run in more if run[0] < run[1])]):
            if first <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(joined[-1][1], end))
            else:
                joined.append((first, end))
        (_, self.below), *self._runs = joined

    @property
    def text(self) -> str:
        parts = self._parts()
        return _VERSION + ",".join(parts) if parts else ""

    @property
    def short_text(self) -> str:
        """As `text`, without the last runs if it would exceed `MAX_TEXT`."""
        parts, length = [], len(_VERSION)
        for part in self._parts():
            length += len(part) + 1
            if length > MAX_TEXT:
                break
            parts.append(part)
        return _VERSION + ",".join(parts) if parts else ""

    def _parts(self) -> list[str]:
        parts, at = [], self.below
        for first, end in self._runs:
            parts.append(f"{first - at}+{end - first}")
            at = end
        return parts

    @classmethod
    def parse(cls, below: int, text: str) -> "OffsetSet":
        """Parse a committed offset and its metadata; metadata of another format adds nothing."""
        runs, at = [], below
        try:
            for part in text.removeprefix(_VERSION).split(",") if text.startswith(_VERSION) else ():
                gap, _, length = part.partition("+")
                if int(gap) < 1 or int(length) < 1:
                    return cls(below)
                runs.append((at + int(gap), at + int(gap) + int(length)))
                at = runs[-1][1]
        except ValueError:
            return cls(below)
        return cls(below, runs)


def _first(run: tuple[int, int]) -> int:
    return run[0]
