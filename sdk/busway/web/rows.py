"""Table rows as responses.

Here: telling a missing row from one of another instance.
Not here: tables (`busway.app.tables`).
"""

from typing import Final, TypeVar

from busway.app.tables.table import Table
from busway.web.bodies import Refused

K = TypeVar("K")
V = TypeVar("V")
RETRY_AFTER_S: Final = 1
"""Seconds of Retry-After: usually an assignment is under way, or another instance has the partition."""


def not_here(what: str) -> Refused:
    """Return 503 with Retry-After: another instance, or soon this one, may have the row."""
    refused = Refused(503, f"{what} is not here now: its partition is with another instance, or on its way; try again")
    refused.headers = {"Retry-After": str(RETRY_AFTER_S)}
    return refused


def row_of(table: Table[K, V], key: K, *, what: str) -> V:
    """Return the row of `key`.

    Args:
        what: the client's word for it, such as `user 7`.

    Raises:
        Refused: 404 without such a row; 503 with Retry-After if this instance does not, or not yet, have the row's
            partition.
    """
    row = table.get(key)
    if row is not None:
        return row
    if not table.covers(key):
        raise not_here(what)
    raise Refused(404, f"nothing is known of {what}")
