"""How long tests wait: the seconds that a quiet machine needs many times over, times a factor for a busy one.

Here: the factor and what it multiplies.
Not here: time-outs whose expiry a test shows, and waits that show that nothing happens; those are the same on every
machine.
"""

import math
import os
from typing import Final

VARIABLE: Final = "BUSWAY_PATIENCE"


def factor() -> float:
    """Return what every time-out is multiplied by: `BUSWAY_PATIENCE`, by default 1.

    Raises:
        ValueError: The variable is no finite number of at least 1.
    """
    text = os.environ.get(VARIABLE, "1")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1 <= value < math.inf:
        raise ValueError(f"the environment variable {VARIABLE} is a number of at least 1, such as 3, not {text!r}")
    return value


def patient(seconds: float) -> float:
    """Return how long to wait for what should happen within `seconds`."""
    return seconds * factor()


def patient_ms(milliseconds: int) -> int:
    """Return the same for a setting in milliseconds that must not expire."""
    return math.ceil(milliseconds * factor())
