"""Truncation of the segments of a log.

Here: the truncation, in steps of which each may fail, be repeated, or be the last before a power cut.
Not here: epochs, producers and flushed offset (`partition_log`), checkpoints (`store`).
"""

from collections.abc import Sequence

from busway_bus.kernel.files import Files
from busway_bus.log.deferred_checks import resume
from busway_bus.log.file_names import SNAPSHOT
from busway_bus.log.reading import segment_at
from busway_bus.log.segment import Segment


def batch_start(segments: Sequence[Segment], offset: int) -> int:
    """Return the start of the batch with `offset`, else `offset`."""
    segment = segments[segment_at(segments, offset)]
    header, _ = next(segment.headers(segment.position_of(offset)), (None, 0))
    return offset if header is None else min(offset, header.base_offset)


def remove_snapshots(files: Files, directory: str, offset: int) -> None:
    """Remove later producer snapshots durably: they would prove what is truncated."""
    for name in files.list(directory):
        if name.endswith(SNAPSHOT) and int(name.removesuffix(SNAPSHOT)) > offset:
            files.remove(f"{directory}/{name}")
    files.sync_directory(directory)


def cut(files: Files, directory: str, segments: list[Segment], offset: int) -> None:
    """Truncate from `offset`, which starts a batch, after the later producer snapshots.

    After an OSError a retry is safe, and look-ups agree with the log files meanwhile.
    """
    remove_snapshots(files, directory, offset)
    while len(segments) > 1 and segments[-1].base_offset > offset:
        segments[-1].delete()  # first: what is left of its files would begin the next segment of that name
        segments.pop()
    segment = segments[-1]
    segment.truncate(offset)
    if not resume(segment, offset):
        segment.indexes.clear()
        segment.take_times()
        segment.take_end(0)
    segment.transactions.cut(offset)
    segment.sync()  # else a power cut could mix truncated records with later ones
