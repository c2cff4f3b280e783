"""Breaches of a comparison and its cost, both bounded.

Here: a request's budget, places in a schema, breaches in shared form.
Not here: the meaning of a breach (`avro`).

Types that refer twice to the previous one have a breach for each path, more than fits into memory. In shared form,
expanded when read, common subtrees are stored once and cost as much as their definitions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

MOST_STEPS: Final = 500_000
"""Limit of a request over all versions and both directions. It takes seconds and at most 300 MiB; 2,000 fields against
30 versions take half.
"""
MOST_BREACHES: Final = 200
"""Limit of breaches reported for a request."""
_MOST_NODES: Final = 1_000
"""Limit of path nodes reported, counted from the end; no schema in use is so deep."""

Message = TypeVar("Message")


class TooMuchWork(ValueError):
    """A request's budget is spent."""


class Budget:
    """The remaining work of a request.

    Args:
        steps: a step is a pair of types, or a field.
    """

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self._whole = steps
        self.left = steps

    def spend(self, steps: int) -> None:
        """Subtract steps; raises `TooMuchWork` if fewer are left."""
        self.left -= steps
        if self.left < 0:
            raise TooMuchWork(f"there are more than {self._whole} pairs of types to compare")


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the reader's schema, as steps below `above`. Java restarts its path at `restarts`."""

    above: "Place | None" = None
    steps: tuple[str | int, ...] = ()
    restarts: bool = False

    def down(self, *steps: str | int) -> "Place":
        return Place(self, steps)

    def branch(self, *steps: str | int) -> "Place":
        return Place(self, steps, restarts=True)

    def path(self) -> str:
        """Return Java's JSON pointer, from the last restart."""
        return self._pointer(from_restart=True)

    def where(self) -> str:
        """Return the JSON pointer from the root; only its end if too long."""
        return self._pointer(from_restart=False)

    def _pointer(self, *, from_restart: bool) -> str:
        parts: list[str] = []
        place: Place | None = self
        for _ in range(_MOST_NODES):
            if place is None or (from_restart and place.restarts):
                break
            parts += map(str, reversed(place.steps))
            place = place.above
        else:
            parts.append("…")
        return "/" + "/".join(reversed(parts))


@dataclass(frozen=True, slots=True, eq=False)
class Breach(Generic[Message]):
    """A breach.

    Attributes:
        cause: the inner breach that it hides, if any.
    """

    describe: Callable[[], Message]
    cause: "Breach[Message] | None" = None


@dataclass(frozen=True, slots=True, eq=False)
class BreachList(Generic[Message]):
    """Two or more breaches, possibly nested."""

    parts: "Sequence[Breach[Message] | BreachList[Message]]"
    first: Breach[Message]


Breaches: TypeAlias = Breach[Message] | BreachList[Message] | None
"""Breaches of a pair of types; None for none."""


def joined(breaches: "Sequence[Breaches[Message]]") -> "Breaches[Message]":
    parts = [part for part in breaches if part is not None]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else BreachList(parts, first(parts[0]))


def first(breaches: Breach[Message] | BreachList[Message]) -> Breach[Message]:
    return breaches.first if isinstance(breaches, BreachList) else breaches


def each(breaches: "Breaches[Message]") -> Iterator[Breach[Message]]:
    """Yield each breach once for each path to it. Callers must stop in time."""
    under_way: list[Iterator[Breach[Message] | BreachList[Message]]] = [iter([] if breaches is None else [breaches])]
    while under_way:
        part = next(under_way[-1], None)
        if part is None:
            under_way.pop()
        elif isinstance(part, BreachList):
            under_way.append(iter(part.parts))
        else:
            yield part
