"""`python -m benchmarks.cluster`: three nodes of Busway and three of Apache Kafka 4.3.1, in turns.

Here: the options.
Not here: the clusters (`subjects`), the loads (`loads`), turns, rounds and the table (`benchmarks.brokers`).
"""

import sys

from benchmarks.brokers import command
from benchmarks.cluster.loads import loads
from benchmarks.cluster.subjects import CLUSTERS


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write the JSON."""
    assert __doc__ is not None
    return command("cluster", __doc__.split("\n\n")[0], loads, arguments, starts=True, subjects=CLUSTERS)


if __name__ == "__main__":
    sys.exit(main())
