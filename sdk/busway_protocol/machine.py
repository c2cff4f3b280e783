"""What the code asks of the machine it runs on, other than through its event loop and its files.

What lives here: `Machine`, the clocks, identifiers and chance that come in from outside. What does not: the real one
(`busway.net.machine`) and the simulated one. Timers, connections and work in threads are the event loop's: `loop.call_later`,
`create_connection`, `run_in_executor`; files have an interface of their own in the broker's kernel. Who reads a clock any other way
cannot be run under a seed.
"""

from collections.abc import Callable, MutableSequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID


class Chance(Protocol):
    """The part of `random.Random` that is used: it spreads load and guards nothing."""

    def random(self) -> float:
        """At least 0, below 1."""
        ...

    def uniform(self, a: float, b: float, /) -> float:
        """Between a and b."""
        ...

    def randrange(self, stop: int, /) -> int:
        """At least 0, below `stop`."""
        ...

    def shuffle(self, x: MutableSequence[Any], /) -> None:
        """Change the order in place."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine's clocks, identifiers and chance.

    Args:
        wall_ms: milliseconds since 1970 (UTC); may jump both ways: for what is told and stored, never for how long something takes.
        monotonic_s: seconds since some moment, never going back: for deadlines, sessions and measures.
        uuid4: a new random identifier (RFC 9562, version 4).
        chance: random numbers.
    """

    wall_ms: Callable[[], int]
    monotonic_s: Callable[[], float]
    uuid4: Callable[[], UUID]
    chance: Chance
