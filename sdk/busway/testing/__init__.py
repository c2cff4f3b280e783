"""Testing services on the real broker and registry, in the process of the test."""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from busway.testing.bus import Cluster, Crash, DeadLetter, TestBus
    from busway.testing.crash import crash_points

__all__ = ["Cluster", "Crash", "DeadLetter", "TestBus", "crash_points"]
_IN: Final = {"crash_points": "busway.testing.crash"}


def __getattr__(name: str) -> Any:
    """Load a name when it is first used: the pytest plugin beside it is loaded by every pytest."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_IN.get(name, "busway.testing.bus")), name)
