"""Simulation of a service: instances, a broker and a registry in one process, with faults drawn from a seed.

Here: imports for tests.
Not here: the simulated machine (`busway_bus.testing.world`).
"""

from busway.testing.simulation.bus import SimulatedBus
from busway.testing.simulation.environment import NotSimulated
from busway.testing.simulation.simulation import Simulation, SimulationFailed, simulate

__all__ = ["NotSimulated", "SimulatedBus", "Simulation", "SimulationFailed", "simulate"]
