"""Work that is split into steps.

Here: running all steps at once, the size of a step.
Not here: yielding to other work (`scheduling.fair_share`).
"""

from collections.abc import Generator
from typing import TypeVar

R = TypeVar("R")


def finished(steps: Generator[None, None, R]) -> R:
    while True:
        try:
            next(steps)
        except StopIteration as over:
            result: R = over.value
            return result


class Pace:
    """Counts work since the last step.

    `at_once`: units in a step, which the last addition may exceed.
    """

    __slots__ = ("_at_once", "_done")

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._done = 0

    def over(self, units: int) -> bool:
        """Add units; return whether the step is over."""
        self._done += units
        if self._done < self._at_once:
            return False
        self._done = 0
        return True
