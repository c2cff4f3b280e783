"""Sets of topics' names that a group holds: what its members subscribe to, and what regular expressions match.

What lives here: what such a set takes, and holding equal ones once: most members of a group subscribe to the same. What does not: how much
a group may hold (`memory_quota`).
"""

from collections.abc import Collection
from typing import Final

from busway_bus.groups.memory_quota import Holding
from busway_bus.kernel.fair_share import NOBODY
from busway_bus.kernel.limits import NAME_BYTES

NO_NAMES: Final[frozenset[str]] = frozenset()


def names_bytes(names: Collection[str]) -> int:
    """What a set of names takes, about."""
    characters = sum(map(len, names))
    if not all(map(str.isascii, names)):
        characters += 3 * sum(len(name) for name in names if not name.isascii())
    return NAME_BYTES * len(names) + characters


class SharedNames:
    """The sets of one group, each with how often it is had; it counts in what the group holds."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._sets: dict[frozenset[str], tuple[frozenset[str], int, str]] = {}
        """Each set, how often it is had, and the host that had it first, for which it counts."""

    def take(self, names: frozenset[str], host: str = NOBODY) -> frozenset[str]:
        """The set that is equal to this one and is held, once more; it has to be given back as often."""
        if not names:
            return NO_NAMES
        shared, count, first = self._sets.get(names, (names, 0, host))
        if not count:
            self._holding.change(host, names_bytes(shared))
        self._sets[shared] = shared, count + 1, first
        return shared

    def give_back(self, names: frozenset[str]) -> None:
        """It is had once less."""
        if not names:
            return
        shared, count, first = self._sets.pop(names)
        if count > 1:
            self._sets[shared] = shared, count - 1, first
        else:
            self._holding.change(first, -names_bytes(shared))

    def more_bytes(self, before: frozenset[str], after: frozenset[str]) -> int:
        """What it would take that somebody has other names."""
        if before == after:
            return 0
        more = 0 if after in self._sets else names_bytes(after)
        _, count, _ = self._sets.get(before, (before, 0, NOBODY))
        return more - names_bytes(before) if count == 1 else more
