"""Simulations of parts of a cluster, by name, from the cheapest to the dearest.

Here: the engines, and the search of one for a planted bug.
Not here: the bugs (`planted_cluster`). A seed that breaks a rule raises an exception whose text begins with the rule.
"""

import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tests.simulation.explore import Rotten
from tests.simulation.planting import Planted, planted
from tests.simulation.quorum import cluster as controllers
from tests.simulation.replicas import scenario as replicas
from tests.unit.busway_bus.controller import leader_model, process_model
from tests.unit.busway_bus.coordinator import group_histories, runtime_histories, transaction_histories
from tests.unit.busway_bus.quorum import simulated

THEMES: Final = {*replicas.THEMES, "elr"}
Run = Callable[[int, str], Any]
"""Runs a seed of a theme; raises where a rule is broken."""

ENGINES: Final[Mapping[str, Run]] = {
    "processes": process_model.run,
    "leaders": leader_model.run,
    "quorum": lambda seed, about: simulated.run(seed),
    "runtime": runtime_histories.run,
    "groups": group_histories.run,
    "replicas": replicas.run,
    "controllers": lambda seed, about: controllers.run(seed),
    "transactions": transaction_histories.run,
}
"""Processes of brokers at the controller; its elections and ISRs; cores of the quorum; a coordinator's runtime that moves;
groups whose coordinator moves; brokers that replicate; controllers with their disks; transactions whose coordinators and
partitions move."""


@dataclass(frozen=True, slots=True)
class ClusterBug:
    """A planted bug, and what has to find it.

    Attributes:
        engine: of `ENGINES`, the cheapest that can find it.
        seeds: from 0 on; one of them finds it.
        anomaly: part of the text of the failure.
        dear: searched for with `make full` only.
    """

    bug: Planted
    engine: str
    seeds: int
    anomaly: str
    dear: bool = False

    @property
    def name(self) -> str:
        return self.bug.name

    @property
    def where(self) -> str:
        """The engine, with its theme."""
        return f"{self.engine}, {self.bug.about}" if self.bug.about in THEMES and self.bug.about else self.engine


class Outcome(NamedTuple):
    """How a bug was detected: after how many seeds and seconds of CPU, and the failure; "" if it was not."""

    seeds: int
    cpu_s: float
    failure: str


def search(bug: ClusterBug) -> Outcome:
    """Run seeds until one fails.

    Raises:
        Rotten: the planted code itself fails: the product has changed.
    """
    began = time.process_time()
    with planted(bug.bug):
        for seed in range(bug.seeds):
            try:
                ENGINES[bug.engine](seed, bug.bug.about)
            except Exception as problem:  # a planted bug may fail in any way; the outcome has it
                _check_plant(bug, problem)
                return Outcome(seed + 1, time.process_time() - began, f"{type(problem).__name__}: {problem}")
    return Outcome(bug.seeds, time.process_time() - began, "")


def holds(bug: ClusterBug, seeds: int) -> None:
    """Run the first seeds without the bug. Exception: a rule is broken."""
    for seed in range(seeds):
        ENGINES[bug.engine](seed, bug.bug.about)


def _check_plant(bug: ClusterBug, problem: BaseException) -> None:
    last = traceback.extract_tb(problem.__traceback__)[-1]
    if "/simulation/planted" in last.filename:
        raise Rotten(f"the planted bug “{bug.name}” fails by itself; plant it where the code is now") from problem
