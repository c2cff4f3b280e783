"""Recovery of a log at start: segments, intact end, producers, leader epochs.

Here: the start-up scan.
Not here: the log in use (`partition_log`).

- Interrupted deletions and cleanings are finished first.
- After a clean shutdown closed segments are not opened.
- After an unclean one records below the newest producer snapshot are trusted after a cheap check of the segments' ends
  (`deferred_checks`). Later records are read, and a torn end is cut off with a log line. Its bytes are kept in a `.cut`
  file until the partition is deleted: a flipped bit in records not yet checkpointed looks like a torn end.
- Flushed records are never truncated: damage there is a `CorruptLog`.

The disk is known to be good up to the checkpoint's recovery point or the newest producer snapshot, whichever is higher.
The flusher writes a snapshot at each roll, and at least every `RECOVERY_BYTES_MAX`, after syncing everything before it.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from busway_bus.kernel.files import Files
from busway_bus.kernel.limits import CUTS_MAX
from busway_bus.log.aborted import AbortedTransaction
from busway_bus.log.deferred_checks import Unchecked, has_sound_end, plausible, resume
from busway_bus.log.epochs import LeaderEpochs
from busway_bus.log.file_names import (
    CLEANED,
    CUT,
    DELETED,
    EPOCHS,
    LOG,
    SEGMENT_FILES,
    SNAPSHOT,
    START,
    SWAP,
    TRANSACTIONS,
    file_name,
)
from busway_bus.log.log_config import LogConfig
from busway_bus.log.producer_state import Ended, ProducerState
from busway_bus.log.segment import Segment
from busway_bus.log.start_note import noted
from busway_protocol.records.batch import HEADER_BYTES, BatchHeader, CorruptBatch, read_header
from busway_protocol.records.control import read_marker

logger = logging.getLogger("busway.log")

_COPIED_BYTES: Final = 1024 * 1024


class CorruptLog(RuntimeError):
    """Damage in flushed data, by file and offset. Nothing is truncated automatically."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """Recovered state of a log.

    Attributes:
        start: log start offset noted on disk after a deletion, else 0.
        proven_bytes: of the last segment, which the next start need not read.
        was_cut: records were truncated, possibly with their leader epochs.
        newest_snapshot: its offset, else 0.
        new_epoch: the checkpoint lacks a leader epoch of the batches.
    """

    segments: list[Segment]
    start: int
    epochs: LeaderEpochs
    new_epoch: bool
    producers: ProducerState
    proven_bytes: int
    was_cut: bool
    newest_snapshot: int


def recover(
    files: Files, directory: str, config: LogConfig, *, now_ms: int, flushed: int, cleaned: int, clean: bool
) -> Recovered:
    """Open the segments, or create the first; CorruptLog for damage below `flushed`.

    Args:
        flushed: the checkpoint's recovery point.
        cleaned: end of the compacted part; below it offsets may be missing.
        clean: the last shutdown was clean, so the files are trusted.
    """
    return _Recovery(files, directory, config, now_ms=now_ms, cleaned=cleaned, clean=clean).run(flushed)


def write_snapshot(files: Files, directory: str, offset: int, snapshot: bytes) -> bool:
    """Write a producer snapshot; False if the disk failed.

    That loses no records: the next start replays from an older snapshot.
    """
    try:
        files.replace(f"{directory}/{file_name(offset, SNAPSHOT)}", snapshot)
    except OSError as problem:
        logger.warning(
            "the producers' snapshot of %s at offset %d cannot be written, the next start reads more instead: %s",
            directory,
            offset,
            problem,
        )
        return False
    return True


class _Recovery:
    def __init__(
        self, files: Files, directory: str, config: LogConfig, *, now_ms: int, cleaned: int, clean: bool
    ) -> None:
        self._files = files
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._cleaned = cleaned
        self._clean = clean
        self._segments: list[Segment] = []
        self._sizes: Mapping[str, int] = {}
        self._newest_snapshot = 0
        self._floor = 0
        self._start = 0
        self._proven = 0
        self._cuts: list[str] = []

    def run(self, flushed: int) -> Recovered:
        try:
            self._tidy()
            self._sizes = self._files.sizes(self._directory)
            snapshots = self._offsets(SNAPSHOT)
            self._newest_snapshot = max(snapshots, default=0)
            self._start = max(noted(self._sizes), default=0)
            self._floor = max(flushed, self._newest_snapshot, self._start)
            self._open(self._offsets(".log"))
            text = self._files.read_bytes(f"{self._directory}/{EPOCHS}")
            epochs = LeaderEpochs.from_text(text.decode(errors="replace") if text else "")
            epochs.truncate(self._segments[-1].next_offset + 1)
            known = epochs.latest
            producers = self._replay(snapshots, epochs, whole=text is None)
            self._date(self._segments[-1])
            self._forget_cuts()
        except BaseException:
            for segment in self._segments:
                segment.close()
            raise
        return Recovered(
            segments=self._segments,
            start=self._start,
            epochs=epochs,
            new_epoch=epochs.latest > known,
            producers=producers,
            proven_bytes=self._proven,
            was_cut=bool(self._cuts),
            newest_snapshot=self._newest_snapshot,
        )

    # Files left half done

    def _offsets(self, suffix: str) -> list[int]:
        offsets = []
        for name in self._sizes:
            base = name.removesuffix(suffix)
            if base != name and base.isdigit():
                offsets.append(int(base))
        return sorted(offsets)

    def _tidy(self) -> None:
        """Remove files of deletions and unfinished cleanings; finish swaps (see `cleaner`)."""
        names = self._files.list(self._directory)
        swaps = [name.removesuffix(f"{LOG}{SWAP}") for name in names if name.endswith(f"{LOG}{SWAP}")]
        for name in names:
            superfluous = name.endswith((DELETED, CLEANED, ".tmp", f".index{SWAP}", f".timeindex{SWAP}"))
            if (superfluous and not name.endswith(START)) or (
                name.endswith(f"{TRANSACTIONS}{SWAP}") and name.removesuffix(f"{TRANSACTIONS}{SWAP}") not in swaps
            ):
                self._files.remove(f"{self._directory}/{name}")
        for base in swaps:
            self._finish_swap(int(base))

    def _finish_swap(self, base: int) -> None:
        sizes = self._files.sizes(self._directory)
        swap = Segment(self._files, self._directory, base, self._now_ms, suffix=SWAP, sizes=sizes)
        try:
            end, problem = swap.recover(self._config, gaps_below=0)
            if problem is not None:
                raise CorruptLog(f"{swap.path('.log')} is damaged at byte {end}: {problem}")
            end_offset = swap.next_offset
        finally:
            swap.close()
        self._sizes = self._files.sizes(self._directory)
        for old in self._offsets(".log"):
            if base <= old < end_offset:
                for suffix in SEGMENT_FILES:
                    self._files.remove(f"{self._directory}/{file_name(old, suffix)}")
        # The old log files must be gone durably before the rename: an aborted-transaction index without one belongs to the new segment.
        self._files.sync_directory(self._directory)
        swap.rename("")

    # Segments

    def _finish_deletion(self, bases: list[int]) -> None:
        while len(bases) > 1 and bases[1] <= self._start:
            base = bases.pop(0)
            for suffix in SEGMENT_FILES:
                self._files.remove(f"{self._directory}/{file_name(base, suffix)}")
        if self._start and (not bases or bases[0] > self._start):
            raise CorruptLog(
                f"{self._directory} begins at offset {self._start}, what was before was deleted; but the segments from there on are gone"
                f"{f', up to offset {bases[0]}' if bases else ''}"
            )

    def _open(self, bases: list[int]) -> None:
        self._finish_deletion(bases)
        for suffix in SEGMENT_FILES[:-1]:  # an index without its log would become that of the next segment of that name
            for base in set(self._offsets(suffix)) - set(bases):
                self._files.remove(f"{self._directory}/{file_name(base, suffix)}")
        if bases and bases[0] > self._floor == 0 and not self._clean:
            # Either the oldest file's name never reached the disk, and no later record was acknowledged; or the checkpoints and
            # snapshots that covered the records before it are lost.
            self._drop(bases, f"nothing is known of what was before offset {bases[0]}")
            bases = []
        elif self._floor and (not bases or bases[0] > self._floor):
            raise CorruptLog(f"{self._directory} was flushed up to {self._floor}, but the segments before it are gone")
        if not bases:
            self._sizes = {}  # a new segment, whose files of that name were removed above
        for at, base in enumerate(bases or [0]):
            upper = bases[at + 1] if at + 1 < len(bases) else None
            segment = Segment(self._files, self._directory, base, self._now_ms, sizes=self._sizes)
            self._segments.append(segment)
            if not bases or self._check(segment, upper):  # the first flush of a new one syncs its name
                continue
            self._drop(bases[at + 1 :], f"the segment before ends at offset {segment.next_offset}")
            return

    def _check(self, segment: Segment, upper: int | None) -> bool:
        """Recover a segment; whether it reaches `upper`, the next base offset."""
        believed = self._believed(segment) if upper is None else self._believed_closed(segment, upper)
        if segment.unchecked is not None:
            return True
        intact, problem = segment.size, None
        scanned = believed is None or believed < segment.size
        if scanned:
            intact, problem = segment.recover(self._config, gaps_below=self._cleaned, position=believed or 0)
        if problem is None:
            problem = self._ends_wrongly(segment, upper)
        if problem is not None:
            flushed = min(self._floor, upper or self._floor)
            if segment.next_offset < self._floor or upper == flushed:
                behind = min(segment.next_offset, flushed)
                raise CorruptLog(
                    f"{segment.path('.log')} is damaged behind offset {behind}, but was flushed up to {flushed}: {problem}"
                )
            self._cut(segment, intact, problem)
        if scanned:
            # Records left in the page cache by a killed process count as flushed from here on, so they are synced. If a failed sync
            # ended that process, its pages are marked clean but are not on disk, so they are rewritten.
            if not self._clean and segment.next_offset > self._floor:
                segment.rewrite(segment.position_of(self._floor) if self._floor > segment.base_offset else 0)
            segment.sync()
        return problem is None

    def _believed(self, active: Segment) -> int | None:
        self._proven = 0
        if not self._clean:
            self._proven = resume(active, self._newest_snapshot)
            return self._proven or None
        active.take_times()
        interval = 0 if active.indexes.offset_entries else self._config.index_interval_bytes
        try:
            sound = has_sound_end(active, interval) and active.times_end_well
        except CorruptBatch:
            return None
        sound = sound and active.next_offset == max(
            self._newest_snapshot, active.base_offset
        )  # a clean shutdown writes this snapshot
        if sound:
            self._proven = active.size
        return active.size if sound else None

    def _believed_closed(self, segment: Segment, upper: int) -> int | None:
        """Return the trusted bytes of a closed segment, or None.

        After a clean shutdown its check is deferred if the index sizes are plausible.
        """
        if not self._clean and upper > self._floor:
            return None
        segment.undate()
        if self._clean and plausible(segment, self._config):
            segment.next_offset = upper
            segment.unchecked = Unchecked(
                upper, self._config, gap_allowed=self._gap_allowed(upper), gaps_below=self._cleaned
            )
            return segment.size
        sound = has_sound_end(segment, self._config.index_interval_bytes)
        # A wrong end may come from a damaged header: then a full scan with checksums locates the damage.
        return segment.size if sound and self._ends_wrongly(segment, upper) is None else None

    def _gap_allowed(self, upper: int) -> bool:
        return self._config.compacted or upper <= self._cleaned

    def _ends_wrongly(self, segment: Segment, upper: int | None) -> CorruptBatch | None:
        end = segment.next_offset
        if upper is None:
            return CorruptBatch("the file ends too early") if end < self._floor else None
        if end > upper:
            return CorruptBatch(f"it reaches to {end - 1}, but the next segment begins at {upper}")
        if end < upper and not (upper <= self._floor and self._gap_allowed(upper)):
            return CorruptBatch(f"it ends before {upper}, where the next segment begins")
        return None

    # Cutting

    def _cut(self, segment: Segment, size: int, problem: CorruptBatch) -> None:
        path, behind = segment.path(".log"), segment.size - size
        if not behind:
            return
        cut_path = f"{path}.{size:010d}{CUT}"
        copy = self._files.open(cut_path)
        try:
            copy.truncate(0)
            for position in range(size, segment.size, _COPIED_BYTES):
                copy.append([segment.read(position, _COPIED_BYTES)])
            copy.sync()
        finally:
            copy.close()
        segment.cut(size)
        self._cuts.append(cut_path)
        logger.warning(
            "%s is truncated at byte %d, behind offset %d: %s. The %d bytes behind it are not served any more and kept in %s",
            path,
            size,
            segment.next_offset - 1,
            problem,
            behind,
            cut_path,
        )

    def _drop(self, bases: list[int], reason: str) -> None:
        """Rename segments that do not follow the log. None was acknowledged."""
        for base in reversed(bases):
            path = f"{self._directory}/{file_name(base, '.log')}"
            cut_path = f"{path}.{0:010d}{CUT}"
            self._files.rename(path, cut_path)
            for suffix in SEGMENT_FILES[:-1]:
                self._files.remove(f"{self._directory}/{file_name(base, suffix)}")
            self._cuts.append(cut_path)
            logger.warning("%s is not served any more and kept as %s: %s", path, cut_path, reason)

    def _forget_cuts(self) -> None:
        """Keep the newest `CUTS_MAX` `.cut` files. Names sort roughly by age."""
        if not self._cuts:
            return
        paths = (f"{self._directory}/{name}" for name in self._files.list(self._directory) if name.endswith(CUT))
        earlier = [path for path in paths if path not in self._cuts]
        for path in earlier[: max(0, len(earlier) - CUTS_MAX)]:
            self._files.remove(path)

    @staticmethod
    def _date(active: Segment) -> None:
        """Date the active segment by its first batch: restarts delay no roll."""
        if active.size >= HEADER_BYTES:
            first = read_header(active.read(0, HEADER_BYTES))
            if first.max_timestamp >= 0:
                active.created_ms = min(active.created_ms, first.max_timestamp)

    # Producers and epochs

    def _replay(self, snapshots: list[int], epochs: LeaderEpochs, *, whole: bool) -> ProducerState:
        """Restore producers from the newest intact snapshot and later headers.

        Indexes of aborted transactions are trusted below it. A damaged one is rebuilt from an older snapshot.
        """
        damaged = self._damaged_index()
        usable = [offset for offset in snapshots if damaged is None or offset <= damaged.base_offset]
        producers, start = _snapshot(self._files, self._directory, usable, self._now_ms)
        retained = {segment.base_offset for segment in self._segments} | set(snapshots[-1:])
        for offset in set(snapshots) - retained:
            self._files.remove(f"{self._directory}/{file_name(offset, SNAPSHOT)}")
        for segment in self._segments:
            if segment.next_offset <= start and not whole:
                continue
            try:
                if segment.base_offset >= start:
                    segment.transactions.clear()
                else:
                    segment.transactions.cut(start)
                for header, position in segment.headers(0 if whole else segment.position_of(start)):
                    epochs.assign(header.partition_leader_epoch, header.base_offset)
                    if header.base_offset >= start:
                        ended = _apply(producers, segment, header, position, self._now_ms)
                        if ended is not None and ended.aborted:
                            segment.transactions.append(AbortedTransaction.of(ended))
            except CorruptBatch as problem:
                raise CorruptLog(f"{segment.path('.log')} is damaged: {problem}") from None
            segment.transactions.sync()  # the next snapshot implies that it is on disk
        return producers

    def _damaged_index(self) -> Segment | None:
        """Find the first damaged index of aborted transactions.

        After a clean shutdown only sizes are checked.
        """
        for segment in self._segments:
            try:
                segment.transactions.check(segment.base_offset, segment.next_offset, whole=not self._clean)
            except CorruptBatch as problem:
                # After a crash nothing beyond the newest snapshot is guaranteed to be on disk, so this is no damage.
                as_after_crash = not self._clean and segment.next_offset > self._newest_snapshot
                level = logging.DEBUG if as_after_crash else logging.WARNING
                logger.log(level, "%s; it is built again from the log", problem)
                return segment
        return None


def _apply(producers: ProducerState, segment: Segment, header: BatchHeader, position: int, now_ms: int) -> Ended | None:
    if header.producer_id < 0:
        return None
    if not header.is_control:
        producers.apply(header, now_ms)
        return None
    marker = read_marker(segment.read(position, header.size_bytes))
    if marker is None:
        return None
    ended = producers.ended_by(header, marker)
    producers.end(header, marker, now_ms)
    return ended


def _snapshot(files: Files, directory: str, offsets: list[int], now_ms: int) -> tuple[ProducerState, int]:
    """Load the newest intact snapshot and its offset, else empty and 0."""
    for offset in reversed(offsets):
        content = files.read_bytes(f"{directory}/{file_name(offset, SNAPSHOT)}") or b""
        restored = ProducerState.from_snapshot(content, now_ms)
        if restored is not None:
            return restored, offset
    return ProducerState(), 0


def replayed(files: Files, directory: str, segments: Sequence[Segment], now_ms: int) -> ProducerState:
    names = [name.removesuffix(SNAPSHOT) for name in files.list(directory) if name.endswith(SNAPSHOT)]
    producers, start = _snapshot(files, directory, sorted(int(name) for name in names if name.isdigit()), now_ms)
    for segment in segments:
        if segment.next_offset > start:
            for header, position in segment.headers(segment.position_of(start)):
                if header.base_offset >= start:
                    _apply(producers, segment, header, position, now_ms)
    return producers
