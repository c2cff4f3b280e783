"""`python -m tests.simulation.three_nodes --seeds 100 --first 1`: seeds, each with its outcome."""

import argparse
import sys
import time
import traceback

from busway_bus.testing.world import World
from tests.simulation.three_nodes.nodes import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.three_nodes", allow_abbrev=False)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--faults", type=int, default=6)
    parser.add_argument("--trace", action="store_true", help="print every event")
    options = parser.parse_args()
    failed = []
    for seed in range(options.first, options.first + options.seeds):
        world, begun = World(seed), time.monotonic()
        try:
            acknowledged, made = world.run(lambda world: run(world, count=options.faults))
        except BaseException as problem:
            if isinstance(problem, KeyboardInterrupt):
                raise
            failed.append(seed)
            print(f"seed {seed} failed: {type(problem).__name__}: {problem}")
            traceback.print_exc()
        else:
            print(
                f"seed {seed}: {acknowledged.total} acknowledged, {dict(made)}, {world.now:.0f} s in "
                f"{time.monotonic() - begun:.1f} s",
                flush=True,
            )
        if options.trace:
            for line in world.trace.lines:
                print(line)
    print(f"{options.seeds} seeds, failed: {failed}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
