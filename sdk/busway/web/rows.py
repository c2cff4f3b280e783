"""Rows of a table as answers.

What lives here: the difference between a row that is nowhere and one that is not here. What does not: tables (`busway.app.tables`).
"""

from typing import Final, TypeVar

from busway.app.tables.table import Table
from busway.web.bodies import Refused

K = TypeVar("K")
V = TypeVar("V")
RETRY_AFTER_S: Final = 1
"""What a client is told to wait: most often partitions are on their way to this instance, or to the one that a balancer asks next."""


def not_here(what: str) -> Refused:
    """503 with Retry-After, for what another instance may have, or this one in a moment."""
    refused = Refused(503, f"{what} is not here now: its partition is with another instance, or on its way; try again")
    refused.headers = {"Retry-After": str(RETRY_AFTER_S)}
    return refused


def row_of(table: Table[K, V], key: K, *, what: str) -> V:
    """The row of `key`.

    Args:
        what: what the client asked for, in its words, such as `user 7`.

    Raises:
        Refused: 404 when there is no such row; 503 with Retry-After when this instance does not have, or not yet have, the partition
            that would hold it.
    """
    row = table.get(key)
    if row is not None:
        return row
    if not table.covers(key):
        raise not_here(what)
    raise Refused(404, f"nothing is known of {what}")
