"""`python -m tests.interop.client_faults`: clients side by side through faults, as a table of Markdown."""

import argparse
import asyncio
import os
import sys
import time
from itertools import groupby

from tests.interop.client_faults.events import HEADER
from tests.interop.client_faults.faults import FAULTS
from tests.interop.client_faults.run import no_worse, run
from tests.interop.client_faults.systems import SYSTEMS


def main() -> int:
    """Run the chosen faults on the chosen systems; 1 if the SDK is worse than the better of the others."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.client_faults", allow_abbrev=False)
    parser.add_argument("--system", choices=SYSTEMS, action="append", help="default: both")
    parser.add_argument("--nodes", type=int, choices=(1, 3), action="append", help="default: 1 and 3")
    parser.add_argument(
        "--fault", action="append", help=f"part of a name, of {', '.join(each.name for each in FAULTS)}"
    )
    parser.add_argument("--protocol", choices=("consumer", "classic"), default="consumer", help="of the groups")
    chosen = parser.parse_args()
    faults = [fault for fault in FAULTS if not chosen.fault or any(part in fault.name for part in chosen.fault)]
    worse = []
    for system in chosen.system or SYSTEMS:
        for count in chosen.nodes or (1, 3):
            table = asyncio.run(run(system, count, faults, protocol=chosen.protocol, note=_note))
            load = " ".join(f"{each:.0f}" for each in os.getloadavg())
            print(f"\n{system}, {count} node{'s' * (count > 1)}, {time.strftime('%Y-%m-%d')}, load {load}\n")
            print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
            for _, group in groupby(sorted(table, key=lambda row: row.fault), key=lambda row: row.fault):
                for row in group:
                    print(f"| {' | '.join(row.cells())} |", flush=True)
            for line in no_worse(table):
                print(f"\nworse: {line}", flush=True)
                worse.append(line)
    return 1 if worse else 0


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
