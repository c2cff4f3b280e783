"""Headers of records replayed from the dead letters.

Here: the group and handler of a replayed record.
Not here: replaying (`replay`).
"""

from typing import Final

from busway.types import Record

REPLAY_HEADER: Final = "busway_replay-for-group"
"""On a record replayed for one group; other groups skip it."""
REPLAY_HANDLER: Final = "busway_replay-for-handler"
"""Its handler in that group; all handlers get the record if that handler no longer exists."""


def is_for_others(record: Record, group: bytes) -> bool:
    return any(name == REPLAY_HEADER and value != group for name, value in record.headers)
