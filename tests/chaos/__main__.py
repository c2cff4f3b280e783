"""`python -m tests.chaos --faults 100 --seed 7`: a run on real processes, in namespaces of its own.

Here: the arguments, and the change into new namespaces.
Not here: the run (`inside`).

The run's network, mounts and loop devices are in its namespaces. The kernel removes them when its last process is gone,
also after SIGKILL.
"""

import os
import sys
from typing import NoReturn

from tools.jars import ToolMissing, kafka_libs

from tests.chaos import foreign_clients
from tests.chaos.arguments import NAMESPACES, NotPossible, check_machine, parsed


def main() -> NoReturn:
    """Become the run in new namespaces; end with 1 if this machine cannot have them."""
    options = parsed(sys.argv[1:])
    try:
        check_machine()
        for program in options.foreign:  # here, as there is no way to the world from the run's network
            foreign_clients.command(program)
        if options.system == "kafka":
            kafka_libs()
    except (NotPossible, ToolMissing) as problem:
        sys.exit(str(problem))
    os.execvp(NAMESPACES[0], [*NAMESPACES, sys.executable, "-m", "tests.chaos.inside", *sys.argv[1:]])


if __name__ == "__main__":
    main()
