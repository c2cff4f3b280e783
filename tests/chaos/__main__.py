"""`python -m tests.chaos --faults 100 --seed 7`: a run on real processes, and its table."""

import argparse
import asyncio
import sys

from tests.chaos.run import Floors, Run


def main() -> int:
    """Run; return 0 if nothing was lost, doubled or different and all floors were reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__, allow_abbrev=False)
    parser.add_argument("--faults", type=int, default=100, help="faults, one after the other (default 100)")
    parser.add_argument("--seed", type=int, default=1, help="of the faults and of the clients' choices (default 1)")
    parser.add_argument("--nodes", type=int, default=3, help="processes, each broker and voter (default 3)")
    options = parser.parse_args()
    run = Run(seed=options.seed, faults=options.faults, nodes=options.nodes, floors=Floors(), notice=print)
    report = asyncio.run(run.run())
    print(report.table())
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
