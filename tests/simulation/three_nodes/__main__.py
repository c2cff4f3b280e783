"""`python -m tests.simulation.three_nodes`: runs of a simulated cluster, on all cores.

Here: the command line.
Not here: what a run is (`run`).
"""

import argparse
import os
import random
import sys
import time
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from busway.testing.simulation.shrinking import ddmin
from busway_bus.testing.world import World
from tests.simulation.three_nodes.explore import SeedOutcome, outcomes
from tests.simulation.three_nodes.plan import ClusterPlan, draw
from tests.simulation.three_nodes.run import run_plan

CASES: Final = Path(__file__).parent / "cases"


def main() -> int:
    """Parse and run."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.three_nodes", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="time to run fresh seeds (default 60)")
    parser.add_argument("--seeds", type=int, help="number of seeds to run instead")
    parser.add_argument("--from", dest="first", type=int, help="first seed; by default a random one, which is printed")
    parser.add_argument("--seed", type=int, help="replay one seed, a line for each event")
    parser.add_argument("--case", type=Path, help="replay a saved plan, a line for each event")
    parser.add_argument("--shrink", action="store_true", help="find the fewest faults and clients that still fail")
    parser.add_argument("--keep", help="with --shrink: save the small plan as cases/NAME.json")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    options = parser.parse_args()
    if options.seed is not None or options.case is not None:
        plan = draw(options.seed) if options.case is None else ClusterPlan.from_json(options.case.read_text())
        return shrink(plan, options.keep) if options.shrink else replay(plan)
    first = options.first if options.first is not None else random.SystemRandom().randrange(10**9)
    return explore(first, options.seconds, options.seeds, options.jobs)


def explore(first: int, seconds: float, seeds: int | None, jobs: int) -> int:
    """Run seeds and print what happened in them; 1 when one failed."""
    print(f"seeds from {first} on, {jobs} processes", flush=True)
    began, done = time.monotonic(), list[SeedOutcome]()
    for outcome in outcomes(first=first, seconds=seconds, seeds=seeds, jobs=jobs):
        done.append(outcome)
        if outcome.problem:
            print(f"\nseed {outcome.seed} failed: {outcome.problem}", flush=True)
    took_s, cpu_s = time.monotonic() - began, sum(outcome.cpu_s for outcome in done)
    failed = sorted(outcome.seed for outcome in done if outcome.problem)
    faults, counts = Counter[str](), Counter[str]()
    for outcome in done:
        faults.update(outcome.faults)
        counts.update(outcome.counts)
    slowest_s = max((outcome.converged_s for outcome in done), default=0.0)
    hours = sum(outcome.virtual_s for outcome in done) / 3600
    print(
        f"\n{len(done)} seeds in {took_s:.0f} s: {len(done) / took_s * 60:.0f} seeds a minute, "
        f"{cpu_s / max(len(done), 1):.2f} s of CPU a seed, {hours:.2f} virtual hours; "
        f"in sync at most {slowest_s:.1f} s (virtual) after the last fault; {len(failed)} failed {failed[:20]}"
    )
    for kind, counted in (("faults", faults), ("counts", counts)):
        print(f"{kind}: " + ", ".join(f"{name} {count}" for name, count in sorted(counted.items())))
    return 1 if failed else 0


def problem_of(plan: ClusterPlan) -> str:
    """Run a plan; return the kind of its failure, "" if everything holds."""
    try:
        run_plan(plan)
    except Exception as problem:  # a failing plan fails in any way
        return f"{type(problem).__name__}: {str(problem).splitlines()[0][:60]}"
    return ""


def shrink(plan: ClusterPlan, keep: str | None) -> int:
    """Leave out faults and clients of a failing plan as long as it fails in the same way."""
    problem = problem_of(plan)
    if not problem:
        print(f"seed {plan.seed} does not fail")
        return 0
    print(problem, flush=True)
    kind = problem.partition(":")[0]

    def fails(**less: Any) -> bool:
        return problem_of(replace(plan, **less)).partition(":")[0] == kind

    plan = replace(plan, faults=tuple(ddmin(plan.faults, lambda faults: fails(faults=tuple(faults)))))
    plan = replace(plan, load=tuple(ddmin(plan.load, lambda load: fails(load=tuple(load)))))
    if keep:
        CASES.mkdir(exist_ok=True)
        (CASES / f"{keep}.json").write_text(plan.to_json())
    return replay(plan)


def replay(plan: ClusterPlan) -> int:
    """Run a plan and print a line for each event."""
    world, failed = World(plan.seed), False
    try:
        outcome = run_plan(plan, world)
    except Exception:  # printed below the events that led to it
        failed = True
        text = traceback.format_exc()
    else:
        text = f"{dict(outcome.faults)} {dict(outcome.counts)} in sync after {outcome.converged_s:.1f} s"
    print(plan.to_json(), *world.trace.lines(), text, sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
