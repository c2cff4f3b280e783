"""Delays between retries.

Here: the length of the next delay: doubling, bounded, with a random share that spreads many clients.
"""

from collections.abc import Callable
from dataclasses import dataclass


def _no_jitter() -> float:
    return 0.0


@dataclass(slots=True)
class Backoff:
    """Delays in seconds: `initial`, doubled each time up to `limit`, minus up to 20 % by `rng`; exact without one."""

    rng: Callable[[], float] = _no_jitter
    initial: float = 0.05
    limit: float = 1.0
    tries: int = 0

    def next(self) -> float:
        """Return the next delay."""
        wait = min(self.limit, self.initial * 2**self.tries)
        self.tries = min(self.tries + 1, 30)
        return float(wait * (1 - 0.2 * self.rng()))

    def reset(self) -> None:
        """Restart after a success."""
        self.tries = 0
