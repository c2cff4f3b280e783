"""Seeds of tests that draw random numbers.

Here: a test's own seed, and the environment variable SEED in its place.
Not here: Hypothesis's examples (BUSWAY_HYPOTHESIS, in the root `conftest.py`), and simulations, which take seeds as
arguments.
"""

import os


def seed(default: int) -> int:
    """Return the environment variable SEED, or `default` without it.

    It is printed, so that pytest shows it where the test fails. Raises ValueError where SEED is no integer.
    """
    given = os.environ.get("SEED") or default
    try:
        value = int(given)
    except ValueError:
        raise ValueError(f"SEED={given}: not an integer; unset it for the test's own seed, {default}") from None
    print(f"SEED={value}")
    return value
