"""Many histories of a service, and the smallest failing one.

Here: `Simulation` and `simulate`, for tests and `busway simulate`.
Not here: one history (`run`).
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from busway.errors import BuswayError
from busway.extras import need
from busway.testing.cluster import check_nodes
from busway.testing.simulation.faults import Seed
from busway.testing.simulation.run import History, Plan, Work, run
from busway.testing.simulation.service import Service, Target
from busway.testing.simulation.shrinking import ddmin

SEEDS: Final = 50
INSTANCES: Final = 2
SHRINKING_MAX: Final = 200
"""Limit of histories run for shrinking."""

W = TypeVar("W", bound=Work)
_real_s = time.perf_counter


class SimulationFailed(AssertionError):
    """A property does not hold in a history. The text has its trace.

    Attributes:
        seed: repeats it: `simulate(…, seed=…)`, `busway simulate … --seed …`.
        history: the smallest failing history.
    """

    def __init__(self, text: str, seed: str, history: History) -> None:
        super().__init__(text)
        self.seed = seed
        self.history = history


class Simulation:
    """A service, its workload and its properties.

        simulation = Simulation("shop.service:app")

        @simulation.workload
        async def customers(bus: SimulatedBus) -> None:
            for number in range(30):
                await bus.send(service.orders, Order(number), key=str(number))

        @simulation.outcome
        async def each_order_is_billed_once(bus: SimulatedBus) -> None:
            billed = [record.value.order for record in await bus.records(service.bills)]
            assert sorted(billed) == list(range(30))

        def test_orders() -> None:
            simulation.run()

    Args:
        service: `"module:app"`, an app bound to a name of its module, or a function that makes an app.
        instances: number of its processes.
        nodes: of the cluster; 1, or 3 to 7.
        environment: variables of an instance; `{instance}` in a value is replaced by its name.
        prepare: called with each new app before it starts: `app.overrides` for what cannot be simulated.
    """

    def __init__(
        self,
        service: Target,
        *,
        instances: int = INSTANCES,
        nodes: int = 1,
        environment: Mapping[str, str] | None = None,
        prepare: Callable[..., None] | None = None,
    ) -> None:
        if instances < 1:
            raise ValueError(f"instances: {instances} is not 1 or more")
        check_nodes(nodes)
        self.target = service
        self._instances, self._nodes = instances, nodes
        self._environment = environment
        self._prepare = prepare
        self._workload: Work | None = None
        self._outcomes: list[Work] = []
        self._invariants: list[Work] = []

    def workload(self, function: W) -> W:
        """Register what other services and users send during faults."""
        if self._workload is not None:
            raise ValueError(f"{function!r}: this simulation has a workload already, {self._workload!r}")
        self._workload = function
        return function

    def outcome(self, function: W) -> W:
        """Register a property of the end state. It asserts, or returns a bool."""
        self._outcomes.append(function)
        return function

    def invariant(self, function: W) -> W:
        """Register a property that always holds; checked every 2 s during faults and at the end."""
        self._invariants.append(function)
        return function

    def run(
        self,
        seeds: int | Iterable[int] = SEEDS,
        *,
        seed: int | str | None = None,
        shrink: bool = True,
        time_s: float | None = None,
        nodes: int | None = None,
        on_held: Callable[[int], None] | None = None,
    ) -> int:
        """Run histories; return their number.

        Args:
            seeds: how many, from 0 on, or which.
            seed: only this one, in the form that a failure names.
            shrink: leave out faults of a failing history while it still fails.
            time_s: start no history after so many seconds.
            nodes: of the cluster; by default the simulation's.
            on_held: called with the number of each seed that held.

        Raises:
            SimulationFailed: a property does not hold.
            NotSimulated: the service does something that cannot be simulated.
            MissingExtra: the simulation's packages are not installed.
        """
        plan = self._plan(self._nodes if nodes is None else nodes)
        count, until_s = 0, None if time_s is None else _real_s() + time_s
        run(plan, Seed(0, ()))  # warms imports, which consume time and chance
        for chosen in _seeds(seeds, seed):
            if until_s is not None and _real_s() >= until_s:
                break
            history = run(plan, chosen)
            count += 1
            if history.problem is not None:
                raise self._failure(plan, chosen, history, count, shrink=shrink)
            if on_held is not None:
                on_held(chosen.number)
        return count

    def _plan(self, nodes: int) -> Plan:
        check_nodes(nodes)
        need("simulation", "busway.testing.simulate")
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            raise BuswayError(
                "a simulation brings an event loop of its own; call it from a plain test (def), not from a coroutine"
            )
        if self._workload is None:
            raise ValueError("this simulation has no workload; write one: @simulation.workload")
        return Plan(
            service=Service(self.target, self._environment, self._prepare),
            instances=self._instances,
            nodes=nodes,
            workload=self._workload,
            outcomes=tuple(self._outcomes),
            invariants=tuple(self._invariants),
        )

    def _failure(self, plan: Plan, seed: Seed, history: History, count: int, *, shrink: bool) -> SimulationFailed:
        drawn = len(history.faults)
        smallest, chosen = shrunk(plan, seed, history) if shrink else (history, seed)
        fickle = (
            ""
            if _repeats(plan, chosen, smallest)
            else (
                "\nIt is not the same when it is run again: something is decided by no seed, such as the order of a set of strings; "
                "run with PYTHONHASHSEED=0, see docs/SIMULATION.md.\n"
            )
        )
        of = f"{len(smallest.faults)} of its {drawn} faults suffice" if shrink and drawn else f"{drawn} faults"
        text = (
            f"{plan.service.name} under seed {seed.number} ({of}), after {count} histories:\n\n    {smallest.problem}\n\n"
            f"{smallest.trace}\n{fickle}\nAgain: {_again(plan, chosen)}"
        )
        return SimulationFailed(text, chosen.text, smallest)


def _again(plan: Plan, seed: Seed) -> str:
    if plan.nodes == 1:
        return f"seed={seed.text!r}, or --seed {seed.text}"
    return f"seed={seed.text!r}, nodes={plan.nodes}, or --seed {seed.text} --nodes {plan.nodes}"


def _repeats(plan: Plan, seed: Seed, history: History) -> bool:
    """Return whether a seed repeats its history; two runs, as the first may still import modules."""
    again = run(plan, seed)
    return again.digest == history.digest or run(plan, seed).digest == again.digest


def shrunk(plan: Plan, seed: Seed, history: History) -> tuple[History, Seed]:
    """Return the smallest failing history found within `SHRINKING_MAX` runs, and its seed."""
    numbers = [fault.number for fault in history.faults]
    smallest, chosen, tried = history, Seed(seed.number, tuple(numbers)), 0

    def fails(kept: Sequence[int]) -> bool:
        nonlocal smallest, chosen, tried
        if tried == SHRINKING_MAX:
            return False
        tried += 1
        candidate = Seed(seed.number, tuple(kept))
        outcome = run(plan, candidate)
        if outcome.problem is None:
            return False
        smallest, chosen = outcome, candidate
        return True

    ddmin(numbers, fails)
    return smallest, chosen


def _seeds(seeds: int | Iterable[int], seed: int | str | None) -> Iterable[Seed]:
    if seed is not None:
        return [Seed.parse(str(seed))]
    return (Seed(number) for number in (range(seeds) if isinstance(seeds, int) else seeds))


def simulate(
    service: Target,
    *,
    workload: Work,
    properties: Sequence[Work] = (),
    invariants: Sequence[Work] = (),
    instances: int = INSTANCES,
    nodes: int = 1,
    environment: Mapping[str, str] | None = None,
    prepare: Callable[..., None] | None = None,
    seeds: int | Iterable[int] = SEEDS,
    seed: int | str | None = None,
    **options: Any,
) -> int:
    """Run a service under many seeds with crashes, freezes and cut connections; return how many held.

    Args:
        properties: as `Simulation.outcome`; the others as `Simulation`, its decorators and its `run`.

    Raises:
        SimulationFailed: a property does not hold; the text has the seed and the trace of the smallest failing history.
    """
    simulation = Simulation(service, instances=instances, nodes=nodes, environment=environment, prepare=prepare)
    simulation.workload(workload)
    for function in properties:
        simulation.outcome(function)
    for function in invariants:
        simulation.invariant(function)
    return simulation.run(seeds, seed=seed, **options)
