"""`python -m tests.simulation`: run seeds, replay one, shrink one, look for planted bugs.

Here: the command line.
Not here: the work on both cores (`explore`), what a run is (`scenario`).
"""

import argparse
import os
import random
import sys
import time
from collections import Counter
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Final

from tests.simulation.drawing import draw
from tests.simulation.explore import outcomes, searches
from tests.simulation.plan import Plan
from tests.simulation.planted import BY_NAME, PLANTED
from tests.simulation.planting import planted
from tests.simulation.scenario import Verdict, run_plan
from tests.simulation.shrink import Shrinking
from tests.simulation.themes import ABOUT

CASES: Final = Path(__file__).parent / "cases"


def main() -> int:
    """Parse and run."""
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time to run fresh seeds (default 60)")
    parser.add_argument("--seeds", type=int, help="number of seeds to run instead")
    parser.add_argument(
        "--from", dest="first", type=int, help="the first seed; by default a random one, which is printed"
    )
    parser.add_argument("--seed", type=int, help="replay one seed, a line for each event")
    parser.add_argument("--case", type=Path, help="replay a saved plan, a line for each event")
    parser.add_argument(
        "--shrink", action="store_true", help="shrink the failing run of --seed or --case, and print its history"
    )
    parser.add_argument("--keep", help="with --shrink: save the small plan as cases/NAME.json")
    parser.add_argument("--plant", choices=sorted(BY_NAME), help="with this planted bug")
    parser.add_argument("--planted", action="store_true", help="measure the seeds that each planted bug needs")
    parser.add_argument("--about", default="", choices=sorted(ABOUT), help="only themes about this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    options = parser.parse_args()
    if options.planted:
        return measure_planted(options.seconds, options.jobs)
    if options.seed is not None or options.case is not None:
        plan = draw(options.seed, options.about) if options.case is None else Plan.from_json(options.case.read_text())
        return shrink(plan, options.plant, options.keep) if options.shrink else replay(plan, options.plant)
    first = options.first if options.first is not None else random.SystemRandom().randrange(10**9)
    try:
        return explore(first, options.seconds, options.seeds, options.jobs, options.plant, options.about)
    except BrokenProcessPool:
        print("a worker process has ended before its seeds were run; what it died of is above", file=sys.stderr)
        return 2


def explore(first: int, seconds: float, seeds: int | None, jobs: int, plant: str | None, about: str = "") -> int:
    """Run seeds and print what they did; 1 when one of them failed."""
    print(f"seeds from {first} on, {jobs} processes", flush=True)
    began, done, failed, counts = time.monotonic(), 0, [], Counter[str]()
    for seed, anomalies, counted in outcomes(
        first=first, seconds=seconds, seeds=seeds, jobs=jobs, plant=plant, about=about
    ):
        done += 1
        counts.update(counted)
        if anomalies:
            failed.append(seed)
            print(f"\nseed {seed} failed:", *anomalies[:5], sep="\n  ")
            again = f"--seed {seed}" + (f" --about {about}" if about else "")
            print(f"  replay: python -m tests.simulation {again}    smaller: … {again} --shrink", flush=True)
            if plant:
                break
    took = time.monotonic() - began
    print(f"\n{done} seeds in {took:.0f} s: {done / took * 60:.0f} seeds a minute, {len(failed)} failed {failed[:20]}")
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return 1 if failed else 0


def replay(plan: Plan, plant: str | None) -> int:
    """Run a plan and print a line for each event."""
    print_plan(plan)
    with planted(BY_NAME[plant] if plant else None):
        outcome = run_plan(plan, tell=print)
    return print_outcome(outcome)


def print_plan(plan: Plan) -> None:
    """What the run consists of."""
    print(f"seed {plan.seed}, {plan.span_ms} ms, broker {dict(plan.broker)}, delays {dict(plan.delays)}")
    for topic in plan.topics:
        print(f"  topic {topic.name}: {topic.partitions} partitions, {dict(topic.configs)}")
    for client in plan.clients:
        print(f"  client {client.name}: {client.operations} operations {client.topic} {dict(client.options)}")
    for fault in plan.faults:
        print(f"  fault {fault}")


def print_outcome(outcome: Verdict) -> int:
    """What became of it; 1 when it failed."""
    print(", ".join(f"{name} {count}" for name, count in sorted(outcome.counts.items())), f"trace {outcome.digest}")
    for anomaly in outcome.anomalies:
        print(f"WRONG: {anomaly}")
    return 1 if outcome.anomalies else 0


def shrink(plan: Plan, plant: str | None, keep: str | None) -> int:
    """Make a failing plan small, print its story, keep it as a case where that is wanted."""
    with planted(BY_NAME[plant] if plant else None):
        names = {anomaly.name for anomaly in run_plan(plan).anomalies}
        if not names:
            print(f"seed {plan.seed} does not fail")
            return 0
        print(f"fails with {', '.join(sorted(names))}; making it smaller", flush=True)

        def fails(candidate: Plan) -> bool:
            return bool(names & {anomaly.name for anomaly in run_plan(candidate).anomalies})

        def tell(smaller: Plan) -> None:
            faults, clients, operations = smaller.size
            print(f"  {faults} faults, {clients} clients, {operations} operations", flush=True)

        small = Shrinking(fails, tell).run(plan)
        print()
        print_plan(small)
        print_outcome(run_plan(small, tell=print))
    if keep:
        CASES.mkdir(exist_ok=True)
        (CASES / f"{keep}.json").write_text(small.to_json())
    return 1


def measure_planted(seconds: float, jobs: int) -> int:
    """Print a table: after how many seeds and seconds of CPU each planted bug is found; 1 when one is not found in time."""
    missed = 0
    for search in searches(PLANTED, seconds=seconds, jobs=jobs):
        missed += not search.anomaly
        print(f"| {search.bug} | {search.seeds} | {search.cpu_s:.1f} | {search.anomaly or 'NOT FOUND'} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
