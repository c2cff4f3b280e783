"""Work that is split into steps.

What lives here: running all steps at once, where they are few, and the size of a step. What does not: yielding to other work
(`scheduling.fair_share`).
"""

from collections.abc import Generator
from typing import TypeVar

R = TypeVar("R")


def finished(steps: Generator[None, None, R]) -> R:
    """Run all steps at once and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as over:
            result: R = over.value
            return result


class Pace:
    """Counts work since the last step. A step exceeds `at_once` by the last addition at most.

    Args:
        at_once: units of work in a step.
    """

    __slots__ = ("_at_once", "_done")

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._done = 0

    def over(self, units: int) -> bool:
        """Add units; return whether the step is over. The next one then begins."""
        self._done += units
        if self._done < self._at_once:
            return False
        self._done = 0
        return True
