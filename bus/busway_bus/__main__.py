"""`python -m busway_bus server.properties`: one broker in its own process.

Here: the minimum for a supervisor.
Not here: the command line for people (`busway broker`).
"""

import sys

from busway_bus.kernel.config import BrokerConfig
from busway_bus.run import CANNOT_START, read_properties, run, serve


def main(arguments: list[str]) -> int:
    """Serve until a signal. Return 0, or 1 after one line with the reason."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m busway_bus server.properties\n")
        return 2
    try:
        config = BrokerConfig.from_properties(read_properties(arguments[0]))
        run(serve(config, started=lambda node: print(f"serving {node.bootstrap_servers}", flush=True)))  # noqa: T201 - its one line of output
    except CANNOT_START as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
