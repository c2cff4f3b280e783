"""Making what fails small; pure.

What lives here: the search for a part that suffices (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input"). What does
not: of what, and whether it fails, which whoever searches knows.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def ddmin(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """A part of `items`, which fail, that still fails and of which no single one can be left out; what was last found to fail is returned."""
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
