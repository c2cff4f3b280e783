"""`python -m tests.unit.busway_bus.quorum`: the simulation under as many seeds as asked for; one line for each that fails, and the sums."""

import argparse
import sys
import time

from tests.unit.busway_bus.quorum.simulated import run


def main() -> int:
    """Run seeds; 1 where one has failed."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("--from", dest="first", type=int, default=int(time.time()), help="the first seed")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    asked = parser.parse_args()
    began, events, elections, acknowledged, failed = time.process_time(), 0, 0, 0, 0
    print(f"seeds {asked.first} to {asked.first + asked.seeds - 1}")
    for seed in range(asked.first, asked.first + asked.seeds):
        try:
            done = run(seed)
        except AssertionError as problem:
            failed += 1
            print(problem, flush=True)
        else:
            events += done.events
            elections += done.invariants.elections
            acknowledged += done.acknowledged
    print(
        f"{failed} of {asked.seeds} failed; {events} events, {elections} elections, {acknowledged} acknowledged, "
        f"{time.process_time() - began:.0f} s of a processor"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
