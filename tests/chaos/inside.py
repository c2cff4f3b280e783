"""A run in its namespaces, and its table: started by `python -m tests.chaos`.

Here: the order from arguments to exit code.
Not here: the namespaces (`arguments`, `network`), the run (`run`).
"""

import asyncio
import logging
import sys

from tests.chaos.arguments import parsed
from tests.chaos.report import Floors
from tests.chaos.run import Run
from tests.chaos.systems import SYSTEMS


def main() -> int:
    """Run; return 0 if nothing was lost, doubled or different and all floors were reached."""
    options = parsed(sys.argv[1:])
    logging.getLogger("busway").setLevel(logging.ERROR)
    run = Run(
        system=SYSTEMS[options.system],
        seed=options.seed,
        faults=options.faults,
        nodes=options.nodes,
        kinds=options.kinds,
        foreign=options.foreign,
        between_s=options.between,
        floors=Floors(),
        notice=lambda line: print(line, flush=True),
    )
    report = asyncio.run(run.run())
    print(report.table())
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
