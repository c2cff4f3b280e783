"""How far the files of a segment that an earlier process wrote are believed without reading all of them.

What lives here: the look at the end of a closed segment, which a start after a clean stop puts off until somebody reads the segment;
and where reading begins in the one that was written to when a process was killed. What does not: which segments deserve it, and what
becomes of damage (`recovery`).

What is believed rests on this: a producers' snapshot is written when all that is before it is on disk, batches and index entries.
"""

import threading
from functools import partial

from busway_bus.log.file_slice import ColdPages
from busway_bus.log.log_config import LogConfig
from busway_bus.log.segment import Segment
from busway_protocol.records.batch import CorruptBatch


class Unchecked:
    """The look at a closed segment, once, by whoever comes first.

    Args:
        upper: where the next segment begins.
        gap_allowed: whether offsets before that may be missing.
        gaps_below: up to where the log was compacted.
    """

    def __init__(self, upper: int, config: LogConfig, *, gap_allowed: bool, gaps_below: int) -> None:
        self._upper = upper
        self._config = config
        self._gap_allowed = gap_allowed
        self._gaps_below = gaps_below
        self._looking = threading.Lock()
        self._problem = ""
        """What is wrong with the segment; each reader gets an exception of its own, as a traceback grows whenever it is raised."""

    def __call__(self, segment: Segment, wait: bool) -> None:
        """Look; where the indexes are of no use, make them anew.

        Raises:
            CorruptBatch: records are damaged or missing.
            ColdPages: without `wait`, the disk would have to be waited for.
        """
        if not self._looking.acquire(blocking=wait):
            raise ColdPages(partial(self, segment, True))
        try:
            if self._problem:
                raise CorruptBatch(self._problem)
            if segment.unchecked is None:
                return
            if not has_sound_end(segment, self._config.index_interval_bytes, wait=wait):
                if not wait:
                    raise ColdPages(partial(self, segment, True))
                self._read_through(segment)
            if segment.next_offset > self._upper or (segment.next_offset < self._upper and not self._gap_allowed):
                self._refuse(segment, f"but the next one begins at {self._upper}")
            segment.unchecked = None
        except (ColdPages, OSError):
            segment.next_offset = self._upper  # as far as anybody knows
            raise
        finally:
            self._looking.release()

    def _read_through(self, segment: Segment) -> None:
        _, problem = segment.recover(self._config, gaps_below=self._gaps_below)
        if problem is not None:
            self._refuse(segment, str(problem))

    def _refuse(self, segment: Segment, reason: str) -> None:
        self._problem = f"{segment.path('.log')} ends before offset {segment.next_offset}: {reason}"
        raise CorruptBatch(self._problem)


def plausible(segment: Segment, config: LogConfig) -> bool:
    """Whether the indexes of a closed segment may be what they should, by their sizes alone."""
    indexes = segment.indexes
    if not indexes.whole:
        return False
    return segment.size <= config.index_interval_bytes or (indexes.offset_entries > 0 and indexes.time_entries > 0)


def has_sound_end(segment: Segment, interval: int, *, wait: bool = True) -> bool:
    """Whether the last index entry of a segment that was closed names a batch from which others follow up to the end of the file,
    none of which should have an entry of its own; the end of the segment is known then.

    Args:
        interval: bytes after which an entry was due; 0 where that is not looked at.

    Raises:
        ColdPages: without `wait`, the disk would have to be waited for.
    """
    if not segment.indexes.whole:
        return False
    last_offset, start = segment.indexes.last_batch(wait=wait) or (-1, 0)
    if last_offset >= 0 and not 0 < start < segment.size:
        return False
    try:
        bytes_since = 0
        for header, position in segment.headers(start, wait=wait):
            if position == start > 0 and header.last_offset != last_offset:
                return False
            if position > start and 0 < interval < bytes_since:
                return False
            if not segment.indexes.time_entries and header.max_timestamp >= 0:
                return False  # a segment is closed with an entry for the largest one
            bytes_since += header.size_bytes
        return segment.take_end(start, wait=wait) == segment.size
    except CorruptBatch:
        return False


def resume(segment: Segment, offset: int) -> int:
    """Believe what is before `offset`, which a snapshot says is on disk, and forget the index entries behind it; answers the position
    of the batch that begins there, 0 where nothing can be believed."""
    if offset <= segment.base_offset:
        return 0
    segment.cut_indexes(offset)
    last_offset, start = segment.indexes.last_batch() or (-1, 0)
    if not 0 < start < segment.size:
        return 0
    try:
        header, _ = next(segment.headers(start), (None, 0))
        if header is None or header.last_offset != last_offset:
            return 0
        if header.max_timestamp >= 0 and not segment.indexes.time_entries:
            return 0
        end = segment.take_end(start, up_to=offset)
        return end if segment.next_offset == offset and segment.times_end_well else 0
    except CorruptBatch:
        return 0
