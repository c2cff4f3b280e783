"""How seldom a process that serves looks for garbage.

What lives here: what Python's collector is told once everything is loaded. What does not: when that is (whoever starts the process). The
collector looks through objects in the thread that makes them, which is the event loop's: by default after every 700 that stay, and
through all there are when a quarter of them is new. Little of what a server makes can be freed by it alone.
"""

import gc
from typing import Final

SERVICE: Final = (50_000, 10, 10)
"""Objects that have come since the young were looked through, and how often that was before the middle-aged and the old are."""
BROKER: Final = (30_000, 2, 1_700)
"""One large request has tens of thousands of objects, none of them garbage yet, and the requests of many connections are most of what
there is: old objects are looked through once in 100 million. The middle-aged are never many: to look through a quarter of a million takes
150 ms."""


def settle(thresholds: tuple[int, int, int] = SERVICE) -> None:
    """Everything is loaded: it stays, and is never looked through again, as that takes a tenth of a second of everybody's time; what
    comes now is looked through at `thresholds`."""
    gc.freeze()
    gc.set_threshold(*thresholds)
