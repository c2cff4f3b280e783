"""The machine as an interface, except event loop and files.

Here: `Machine`: clocks, identifiers and random numbers.
Not here: the real one (`busway.net.machine`) and the simulated one. Timers, connections and threads belong to the event
loop: `loop.call_later`, `create_connection`, `run_in_executor`; files have an interface in the broker's kernel. Code
that reads another clock cannot be simulated under a seed.
"""

from collections.abc import Callable, MutableSequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID


class Chance(Protocol):
    """The used part of `random.Random`: it spreads load, no secrets depend on it."""

    def random(self) -> float:
        """Return a number from 0 up to, excluding, 1."""
        ...

    def uniform(self, a: float, b: float, /) -> float:
        """Return a number between a and b."""
        ...

    def randrange(self, stop: int, /) -> int:
        """Return an integer from 0 up to, excluding, `stop`."""
        ...

    def shuffle(self, x: MutableSequence[Any], /) -> None:
        """Shuffle in place."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Clocks, identifiers and random numbers of one machine.

    Args:
        wall_ms: milliseconds since 1970 (UTC); may jump both ways: for output and storage, never for durations.
        monotonic_s: seconds that never decrease: for deadlines, sessions and measurements.
        uuid4: a new random identifier (RFC 9562, version 4).
        chance: random numbers.
    """

    wall_ms: Callable[[], int]
    monotonic_s: Callable[[], float]
    uuid4: Callable[[], UUID]
    chance: Chance
