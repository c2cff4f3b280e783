"""The machine that a process runs on.

Here: `OS`, the real machine, and `current_machine`, that of the running event loop. A simulated loop has a separate one
in its attribute `machine`, so that all clients of a service are simulated.
"""

import asyncio
import random
import time
import uuid
from typing import Final, cast

from busway_protocol.machine import Machine


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


OS: Final = Machine(
    wall_ms=_wall_ms,
    monotonic_s=time.monotonic,
    uuid4=uuid.uuid4,
    chance=random.Random(),  # noqa: S311 - spreads load; no secrets depend on it
)


def current_machine() -> Machine:
    """Return the event loop's machine, else the real one; call it once at start."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return OS
    return cast("Machine", getattr(loop, "machine", OS))


def has_threads() -> bool:
    """Return whether threads may run beside the event loop; a simulated one does their work."""
    return current_machine() is OS
