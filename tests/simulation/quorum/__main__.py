"""`python -m tests.simulation.quorum`: controllers under as many seeds as asked for; one line for each that fails, and the sums."""

import argparse
import sys
import time

from tests.simulation.quorum.cluster import run


def main() -> int:
    """Run seeds; 1 where one has failed."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("--from", dest="first", type=int, default=int(time.time()), help="the first seed")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--voters", type=int, default=3, help="how many controllers there are")
    asked = parser.parse_args()
    began, elections, answered, installed, failed = time.process_time(), 0, 0, 0, 0
    print(f"seeds {asked.first} to {asked.first + asked.seeds - 1}")
    for seed in range(asked.first, asked.first + asked.seeds):
        try:
            done = run(seed, voters=asked.voters)
        except AssertionError as problem:
            failed += 1
            print(problem, flush=True)
        else:
            elections += len(done.invariants.leaders)
            answered += len(done.invariants.answers)
            installed += done.invariants.installed
    print(
        f"{failed} of {asked.seeds} failed; {elections} elections, {answered} commands answered, {installed} snapshots installed, {time.process_time() - began:.0f} s of a processor"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
