"""The machine as an interface, except event loop and files.

Here: `Machine`: clocks, identifiers and random numbers.
Not here: the real one (`busway.net.machine`) and the simulated one. Code that reads another clock cannot be simulated under a seed.
"""

from collections.abc import Callable, MutableSequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID


class Chance(Protocol):
    """The used part of `random.Random`: it spreads load, no secrets depend on it."""

    def random(self) -> float: ...

    def uniform(self, a: float, b: float, /) -> float: ...

    def randrange(self, stop: int, /) -> int: ...

    def shuffle(self, x: MutableSequence[Any], /) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Clocks, identifiers and random numbers of one machine.

    Args:
        wall_ms: milliseconds since 1970 (UTC); may jump both ways: for output and storage, never for durations.
        monotonic_s: seconds that never decrease: for deadlines, sessions and measurements.
    """

    wall_ms: Callable[[], int]
    monotonic_s: Callable[[], float]
    uuid4: Callable[[], UUID]
    chance: Chance
