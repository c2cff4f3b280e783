"""Garbage collection of long-running processes.

The collector runs in the allocating thread, the event loop's: by default after every 700 surviving objects, and over
all objects when a quarter of them is new. It frees little of what a server allocates.
"""

import gc
from typing import Final

SERVICE: Final = (50_000, 10, 10)
"""New objects before a young collection, and collections before the next generation's."""
BROKER: Final = (30_000, 2, 1_700)
"""Thresholds of a broker: a full collection per 100 million objects.

One large request has tens of thousands of live objects, and requests of many connections are most of all objects. The
middle generation stays small: 250,000 objects take 150 ms.
"""


def settle(thresholds: tuple[int, int, int] = SERVICE) -> None:
    """Freeze all loaded objects and set the thresholds for new ones.

    Collecting them would block the event loop for a tenth of a second.
    """
    gc.freeze()
    gc.set_threshold(*thresholds)
