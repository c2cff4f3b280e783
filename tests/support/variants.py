"""Parameters that only `make full` tries.

Here: the mark on them.
Not here: the stages that run them (`tools/full`).
"""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def with_variants(values: Iterable[Any], *, gate: Collection[Any]) -> list[Any]:
    """Return parameters for `pytest.mark.parametrize`; `make test` runs those of `gate` alone.

    A test is worth it where its cases differ by the step of a crash, the node that dies or the seed, and other tests of the
    gate cover the same code.

    Raises:
        ValueError: a value of `gate` is none of the values.
    """
    every = list(values)
    if unknown := [value for value in gate if value not in every]:
        raise ValueError(f"{unknown} is none of {every}")
    return [value if value in gate else pytest.param(value, marks=pytest.mark.variant) for value in every]
