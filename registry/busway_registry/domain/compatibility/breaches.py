"""What a comparison finds and what it costs, both bounded.

What lives here: the budget of a request, places in a schema, and breaches in the form in which they were found: shared where the same
types meet again, expanded to text when they are read. Types that refer twice to the one before have a breach for each way through them,
more than there is memory for; here they cost what their definitions cost. What does not: what a breach is (`avro`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

MOST_STEPS: Final = 500_000
"""Of one request, over all versions and both directions: some seconds, and 300 MiB at most. A record of two thousand fields against
thirty versions both ways takes half."""
MOST_BREACHES: Final = 200
"""Breaches reported for one request."""
_MOST_NODES: Final = 1_000
"""Nodes of a path that are reported: the last ones. No schema in use is so deep."""

Told = TypeVar("Told")


class TooMuchWork(ValueError):
    """The budget of a request is spent; the text says so."""


class Budget:
    """What a request may still compute.

    Args:
        steps: how much; one is a pair of types, or a field.
    """

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self._whole = steps
        self.left = steps

    def spend(self, steps: int) -> None:
        """Take it.

        Raises:
            TooMuchWork: there is not so much left.
        """
        self.left -= steps
        if self.left < 0:
            raise TooMuchWork(f"there are more than {self._whole} pairs of types to compare")


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the reader's schema: the way down to it from `above`; `restarts` where Java begins a path of its own."""

    above: "Place | None" = None
    steps: tuple[str | int, ...] = ()
    restarts: bool = False

    def down(self, *steps: str | int) -> "Place":
        """Further in."""
        return Place(self, steps)

    def branch(self, *steps: str | int) -> "Place":
        """Inside a union."""
        return Place(self, steps, restarts=True)

    def path(self) -> str:
        """As Java tells it: a JSON pointer from the last restart."""
        return self._pointer(from_restart=True)

    def where(self) -> str:
        """In full: a JSON pointer from the root, or the end of one that is too long."""
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
class Breach(Generic[Told]):
    """One breach.

    Attributes:
        tell: puts it into words.
        cause: the breach further in that it hides, if it does; itself one that hides none.
    """

    tell: Callable[[], Told]
    cause: "Breach[Told] | None" = None


@dataclass(frozen=True, slots=True, eq=False)
class Several(Generic[Told]):
    """Two or more, each of which may be several; `first` is the first breach in all of them."""

    parts: "Sequence[Breach[Told] | Several[Told]]"
    first: Breach[Told]


Breaches: TypeAlias = Breach[Told] | Several[Told] | None
"""What one pair of types has; None for nothing."""


def joined(breaches: "Sequence[Breaches[Told]]") -> "Breaches[Told]":
    """All of them, in order; nothing is copied."""
    parts = [part for part in breaches if part is not None]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else Several(parts, first(parts[0]))


def first(breaches: Breach[Told] | Several[Told]) -> Breach[Told]:
    """The first one."""
    return breaches.first if isinstance(breaches, Several) else breaches


def each(breaches: "Breaches[Told]") -> Iterator[Breach[Told]]:
    """One after another, each as often as there are ways to it: end it in time."""
    under_way: list[Iterator[Breach[Told] | Several[Told]]] = [iter([] if breaches is None else [breaches])]
    while under_way:
        part = next(under_way[-1], None)
        if part is None:
            under_way.pop()
        elif isinstance(part, Several):
            under_way.append(iter(part.parts))
        else:
            yield part
