"""Sets of a group's topic names: subscriptions and matches of regular expressions.

Here: their memory; equal sets are shared.
Not here: the limit (`memory_quota`).
"""

from collections.abc import Collection
from typing import Final

from busway_bus.groups.memory_quota import QuotaUsage
from busway_bus.kernel.fair_share import NOBODY
from busway_bus.kernel.limits import NAME_BYTES

NO_NAMES: Final[frozenset[str]] = frozenset()


def names_bytes(names: Collection[str]) -> int:
    characters = sum(map(len, names))
    if not all(map(str.isascii, names)):
        characters += 3 * sum(len(name) for name in names if not name.isascii())
    return NAME_BYTES * len(names) + characters


class SharedNames:
    """Reference-counted sets of one group, accounted in its memory."""

    def __init__(self, usage: QuotaUsage) -> None:
        self._usage = usage
        self._sets: dict[frozenset[str], tuple[frozenset[str], int, str]] = {}
        """Each set, its reference count, and its first host, which is charged."""

    def take(self, names: frozenset[str], host: str = NOBODY) -> frozenset[str]:
        """Return the shared equal set; `give_back` releases it."""
        if not names:
            return NO_NAMES
        shared, count, first = self._sets.get(names, (names, 0, host))
        if not count:
            self._usage.change(host, names_bytes(shared))
        self._sets[shared] = shared, count + 1, first
        return shared

    def give_back(self, names: frozenset[str]) -> None:
        if not names:
            return
        shared, count, first = self._sets.pop(names)
        if count > 1:
            self._sets[shared] = shared, count - 1, first
        else:
            self._usage.change(first, -names_bytes(shared))

    def more_bytes(self, before: frozenset[str], after: frozenset[str]) -> int:
        """Return the additional memory if one holder changes its names."""
        if before == after:
            return 0
        more = 0 if after in self._sets else names_bytes(after)
        _, count, _ = self._sets.get(before, (before, 0, NOBODY))
        return more - names_bytes(before) if count == 1 else more
