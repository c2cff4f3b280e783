"""Tests on the real broker and registry in the test's process, and simulation."""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from busway.testing.bus import Crash, TestBus
    from busway.testing.cluster import Cluster
    from busway.testing.crash import crash_points
    from busway.testing.dead_letter import DeadLetter
    from busway.testing.simulation import NotSimulated, SimulatedBus, Simulation, SimulationFailed, simulate

__all__ = [
    "Cluster",
    "Crash",
    "DeadLetter",
    "NotSimulated",
    "SimulatedBus",
    "Simulation",
    "SimulationFailed",
    "TestBus",
    "crash_points",
    "simulate",
]
_SIMULATION: Final = "busway.testing.simulation"
_IN: Final = {
    "Cluster": "busway.testing.cluster",
    "DeadLetter": "busway.testing.dead_letter",
    "crash_points": "busway.testing.crash",
    "NotSimulated": _SIMULATION,
    "SimulatedBus": _SIMULATION,
    "Simulation": _SIMULATION,
    "SimulationFailed": _SIMULATION,
    "simulate": _SIMULATION,
}


def __getattr__(name: str) -> Any:
    """Load a name on first use; every pytest run imports this package for the plugin."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_IN.get(name, "busway.testing.bus")), name)
