"""`transaction.boundary` of a source: where its transactions end (KIP-618).

Here: the settings' names and values.
Not here: ending a transaction (`runtime.transactional`).
"""

from typing import Final

from busway_connect.connector import Config

BOUNDARY: Final = "transaction.boundary"
INTERVAL: Final = "transaction.boundary.interval.ms"
BOUNDARIES: Final = ("INTERVAL", "POLL", "CONNECTOR")


def boundary_of(config: Config) -> str:
    """Return the connector's `transaction.boundary`, in capitals."""
    return config.get(BOUNDARY, "poll").strip().upper()
