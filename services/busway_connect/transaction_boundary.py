"""`transaction.boundary` of a source: where its transactions end (KIP-618).

Here: names and values.
Not here: ending a transaction (`runtime.transactional`).
"""

from typing import Final

from busway_connect.connector import Config

BOUNDARY: Final = "transaction.boundary"
INTERVAL: Final = "transaction.boundary.interval.ms"
BOUNDARIES: Final = ("INTERVAL", "POLL", "CONNECTOR")


def boundary_of(config: Config) -> str:
    return config.get(BOUNDARY, "poll").strip().upper()
