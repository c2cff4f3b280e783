"""Names of a partition's files: Kafka's, except `.cut` and `.start.deleted`.

Here: base offset in twenty digits, and suffixes.
Not here: directories, files beside them (`checkpoints`).
"""

from typing import Final

LOG: Final = ".log"
TRANSACTIONS: Final = ".txnindex"
"""Index of aborted transactions with markers in the segment."""
SEGMENT_FILES: Final = (".index", ".timeindex", TRANSACTIONS, LOG)
"""Suffixes of a segment's files; the log last: without it the segment does not exist."""
SNAPSHOT: Final = ".snapshot"
"""Producer snapshot at the offset in the name."""
EPOCHS: Final = "leader-epoch-checkpoint"

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
"""Suffixes of files: deleted, being written, ready to be swapped in."""
START: Final = f".start{DELETED}"
"""Suffix of the note of a log start offset (`start_note`)."""
CUT: Final = ".cut"
"""Suffix of bytes cut from a log at start."""


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"
