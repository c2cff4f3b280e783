"""Trust in segment files of an earlier process.

Here: the check of a closed segment's end, deferred by a clean start until the first read; where a start reads a killed
process' active segment.
Not here: handling of damage (`recovery`). A producer snapshot proves that all earlier batches and index entries are on
disk.
"""

import threading
from functools import partial

from busway_bus.log.file_slice import ColdPages
from busway_bus.log.log_config import LogConfig
from busway_bus.log.segment import Segment
from busway_protocol.records.batch import CorruptBatch


class Unchecked:
    """Deferred check of a closed segment, run by its first reader.

    Args:
        upper: base offset of the next segment.
        gap_allowed: offsets before `upper` may be missing.
        gaps_below: end of the log's compacted part.
    """

    def __init__(self, upper: int, config: LogConfig, *, gap_allowed: bool, gaps_below: int) -> None:
        self._upper = upper
        self._config = config
        self._gap_allowed = gap_allowed
        self._gaps_below = gaps_below
        self._looking = threading.Lock()
        self._problem = ""
        """The damage. Readers get new exceptions: tracebacks grow with each raise."""

    def __call__(self, segment: Segment, wait: bool) -> None:
        """Check the segment; rebuild damaged indexes.

        Raises:
            CorruptBatch: records are damaged or missing.
            ColdPages: only without `wait`.
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
            segment.next_offset = self._upper  # back to the assumption
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
    indexes = segment.indexes
    if not indexes.whole:
        return False
    return segment.size <= config.index_interval_bytes or (indexes.offset_entries > 0 and indexes.time_entries > 0)


def has_sound_end(segment: Segment, interval: int, *, wait: bool = True) -> bool:
    """Set a closed segment's end offset, if its end is sound.

    The last index entry must match a batch from which batches follow to the end of the file, none due for its own
    entry. `interval`: bytes between index entries; 0 skips that check. ColdPages: only without `wait`.
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
                return False  # closing a segment writes an entry for its largest timestamp
            bytes_since += header.size_bytes
        return segment.take_end(start, wait=wait) == segment.size
    except CorruptBatch:
        return False


def resume(segment: Segment, offset: int) -> int:
    """Trust a segment below a snapshot's offset; remove later index entries.

    Returns the position of the batch at `offset`, or 0 if nothing can be trusted.
    """
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
