"""The names of a partition's files, which are Kafka's but for `.cut` and `.start.deleted`.

What lives here: base offset in twenty digits, and what follows it. What does not: directories (`directories`), and the files beside
them (`checkpoints`).
"""

from typing import Final

LOG: Final = ".log"
TRANSACTIONS: Final = ".txnindex"
"""The aborted transactions whose end is in a segment; there only where it has any."""
SEGMENT_FILES: Final = (".index", ".timeindex", TRANSACTIONS, LOG)
"""What a segment is made of, the log last: while it has its name, the segment is there."""
SNAPSHOT: Final = ".snapshot"
"""The producers' state as of the offset in the name."""
EPOCHS: Final = "leader-epoch-checkpoint"

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
"""What follows the name of a file that leaves, of one that is being written, and of one that is whole and comes."""
START: Final = f".start{DELETED}"
"""What follows the offset that a log begins at (see `start_note`)."""
CUT: Final = ".cut"
"""What a start took out of a log."""


def file_name(base_offset: int, suffix: str) -> str:
    """`00000000000000000042.log` and the like."""
    return f"{base_offset:020d}{suffix}"
