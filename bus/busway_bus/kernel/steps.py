"""Work that is done a step at a time.

What lives here: doing all of it at once, where it is small. What does not: letting others in between (`scheduling.fair_share`).
"""

from collections.abc import Generator
from typing import TypeVar

R = TypeVar("R")


def finished(steps: Generator[None, None, R]) -> R:
    """What `steps` returns, all of it at once."""
    while True:
        try:
            next(steps)
        except StopIteration as over:
            result: R = over.value
            return result


class Pace:
    """How much was done since the last step; a step is at most so much, and what was begun with it.

    Args:
        at_once: units of work in a step.
    """

    __slots__ = ("_at_once", "_done")

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._done = 0

    def over(self, units: int) -> bool:
        """Whether, with so many more units that were done, the step is over; the next one begins then."""
        self._done += units
        if self._done < self._at_once:
            return False
        self._done = 0
        return True
