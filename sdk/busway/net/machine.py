"""The machine that a process runs on.

What lives here: `OS`, the real clocks, identifiers and chance, and `current_machine`, which of them the running event loop stands for.
A simulated loop has a machine of its own in its attribute `machine`, so that clients which a service makes anywhere are simulated, too.
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
    chance=random.Random(),  # noqa: S311 - spreads load, guards nothing
)


def current_machine() -> Machine:
    """The machine of the running event loop, the real one where none runs; look it up once, at start, and keep it."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return OS
    return cast("Machine", getattr(loop, "machine", OS))


def has_threads() -> bool:
    """Whether threads may run beside the running event loop; a simulated one is alone, and does their work itself."""
    return current_machine() is OS
