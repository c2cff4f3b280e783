"""The order of tests for several processes.

Here: slow tests before fast ones, in the part of each process.
Not here: which process runs which test (xdist).
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def slow_first(tests: Sequence[T], is_slow: Callable[[T], bool], workers: int) -> list[T]:
    """Return the tests in equal parts for so many processes, each with its share of slow ones before fast ones.

    `--dist worksteal` gives each process one part, in this order; a process without work takes from the end of another's.
    The last tests are then fast ones, and no process waits long for the others. Neighbours stay neighbours, for what they share.
    """
    slow = [test for test in tests if is_slow(test)]
    fast = [test for test in tests if not is_slow(test)]
    ordered: list[T] = []
    for worker in range(workers):
        for kind in (slow, fast):
            ordered += kind[len(kind) * worker // workers : len(kind) * (worker + 1) // workers]
    return ordered
