"""Headers of records that are replayed from the dead letters.

What lives here: which group and handler a replayed record is for. What does not: replaying (`replay`), what a dead letter says (`letter`).
"""

from typing import Final

from busway.types import Record

REPLAY_HEADER: Final = "busway_replay-for-group"
"""On a record that was replayed for one group alone; others have handled it before."""
REPLAY_HANDLER: Final = "busway_replay-for-handler"
"""And for this one of its handlers; if the group has none of that name any more, all of them get it."""


def is_for_others(record: Record, group: bytes) -> bool:
    """Return whether a record was replayed for another group than this."""
    return any(name == REPLAY_HEADER and value != group for name, value in record.headers)
