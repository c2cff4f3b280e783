"""Minimising a failing input; pure.

Here: delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input").
Not here: the items and the test for failure.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def ddmin(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """Return a failing part of `items` from which none can be removed.

    It is the last input for which `fails` returned true.
    """
    left, chunks = list(items), 2
    if left and fails([]):
        return []
    while len(left) > 1:
        size = -(-len(left) // chunks)
        for start in range(0, len(left), size):
            rest = left[:start] + left[start + size :]
            if fails(rest):
                left, chunks = rest, max(chunks - 1, 2)
                break
        else:
            if size == 1:
                break
            chunks = min(len(left), chunks * 2)
    return left
