"""Waiting between tries.

What lives here: the length of the next wait: doubling, bounded, with a random share so that many clients do not come at once.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Waits in seconds: `initial`, then twice as long each time up to `limit`, less up to 20 % drawn from `rng`."""

    rng: Callable[[], float]
    initial: float = 0.05
    limit: float = 1.0
    tries: int = 0

    def next(self) -> float:
        """The next wait."""
        wait = min(self.limit, self.initial * 2**self.tries)
        self.tries = min(self.tries + 1, 30)
        return float(wait * (1 - 0.2 * self.rng()))

    def reset(self) -> None:
        """Begin anew after a success."""
        self.tries = 0
