"""A service under simulation: instances of it, a broker and a registry in one process, with faults that a seed draws.

What lives here: what a test imports. What does not: the simulated machine (`busway_bus.testing.world`), a service on real sockets
(`busway.testing.bus`).
"""

from busway.testing.simulation.bus import SimulatedBus
from busway.testing.simulation.outside import NotSimulated
from busway.testing.simulation.simulation import Simulation, SimulationFailed, simulate

__all__ = ["NotSimulated", "SimulatedBus", "Simulation", "SimulationFailed", "simulate"]
