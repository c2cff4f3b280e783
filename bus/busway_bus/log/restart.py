"""Removal of all records of a log, which then begins at a later offset.

Here: its files, for a log that is open or not.
Not here: the log in memory (`partition_log`), checkpoints (`store`). A caller that was interrupted repeats it.
"""

from typing import Final

from busway_bus.kernel.files import Files
from busway_bus.log.file_names import CLEANED, DELETED, EPOCHS, LOG, SEGMENT_FILES, SNAPSHOT, START, SWAP, file_name

_REMOVED: Final = (*SEGMENT_FILES, SNAPSHOT, DELETED, CLEANED, SWAP)


def remove_records(files: Files, directory: str, offset: int) -> None:
    """Remove segments, producer snapshots and leader epochs durably; an empty segment begins at `offset`."""
    note = file_name(offset, START)
    for name in files.list(directory):
        if name != note and (name == EPOCHS or name.endswith(_REMOVED)):
            files.remove(f"{directory}/{name}")
    files.replace(f"{directory}/{note}", b"")  # a start without the segments before it reports lost records
    files.open(f"{directory}/{file_name(offset, LOG)}").close()
    files.sync_directory(directory)
