"""Snapshots of the metadata log on disk: shorter replay, and the log's beginning can be deleted.

Here: when a snapshot is due, writing beside the event loop, which are kept, which a start loads.
Not here: their content (`metadata.snapshot`). A snapshot gets its name when its file is wholly on disk. The newest two
always stay, with the log from the older on: damage to one loses nothing. Older ones stay as long as Kafka's retention.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.files import Files
from busway_bus.metadata.delta import BrokenHistory, Delta
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.snapshot import SUFFIX, SnapshotId, batches_of, last_contained_ms, read_into
from busway_bus.scheduling.off_loop import off_loop
from busway_protocol.errors import ProtocolError

logger = logging.getLogger("busway.metadata")

KEPT: Final = 2
PART: Final = f"{SUFFIX}.part"
"""Suffix of an unfinished file, as Kafka's."""
RETRY_MS: Final = 60_000
"""Pause after a failed snapshot."""
_HEADER_BYTES: Final = 256
"""Bytes that a snapshot's first batch fits into."""
PAUSE_S: Final = 0.002
"""Pause between two batches: a snapshot takes part of a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLimits:
    """When snapshots are written and deleted.

    Attributes:
        bytes_max, interval_ms: of new records, or since the last snapshot, until the next; 0 ms is never.
        retention_bytes: of log and snapshots, from which on the oldest are deleted; -1 is never.
        retention_ms: age of the last record in the oldest snapshot, from which on it is deleted; -1 is never.
    """

    bytes_max: int = 20 * 1024 * 1024
    interval_ms: int = 3_600_000
    retention_bytes: int = 100 * 1024 * 1024
    retention_ms: int = 7 * 24 * 3_600_000

    @classmethod
    def of(cls, config: BrokerConfig) -> "SnapshotLimits":
        return cls(
            bytes_max=config.get("metadata.log.max.record.bytes.between.snapshots"),
            interval_ms=config.get("metadata.log.max.snapshot.interval.ms"),
            retention_bytes=config.get("metadata.max.retention.bytes"),
            retention_ms=config.get("metadata.max.retention.ms"),
        )


class LogPoint(NamedTuple):
    """A point of the log up to which an image goes.

    Attributes:
        end_offset: the offset behind the last record.
        appended_ms: timestamp of that record.
        bytes_total: bytes of the log behind the snapshot that the start loaded.
        epoch: of the leader that wrote it.
    """

    end_offset: int
    appended_ms: int
    bytes_total: int
    epoch: int

    def after(self, end_offset: int, appended_ms: int, size_bytes: int, epoch: int) -> "LogPoint":
        return LogPoint(end_offset, appended_ms, self.bytes_total + size_bytes, epoch)


class MetadataSnapshots:
    """The snapshots in the metadata log's directory.

    `sizes`: bytes of the complete ones, oldest first; damage is found by `load`.
    """

    def __init__(self, files: Files, directory: str, limits: SnapshotLimits) -> None:
        self._files = files
        self._directory = directory
        self._limits = limits
        sizes = {SnapshotId.from_name(name): size for name, size in files.sizes(directory).items()}
        self.sizes = {snapshot: sizes[snapshot] for snapshot in sorted(key for key in sizes if key is not None)}
        self._dated: dict[SnapshotId, int] = {}
        for snapshot in self.sizes:
            self.date(snapshot)
        self._bytes_covered = 0
        self._last_ms: int | None = None
        self._retry_ms = 0

    @property
    def ids(self) -> tuple[SnapshotId, ...]:
        return tuple(self.sizes)

    @property
    def flushed(self) -> int:
        """The flushed offset: a snapshot has flushed records only."""
        return self.ids[-1].offset if self.sizes else 0

    def load(self) -> tuple[Delta, SnapshotId | None, list[str]]:
        """Load the newest readable snapshot: content, id, errors of newer ones.

        Without a snapshot: an empty image and None.
        """
        problems = []
        for snapshot in reversed(self.ids):
            path = f"{self._directory}/{snapshot.name}"
            delta = Delta(ClusterImage())
            try:
                read_into(self._files.read_bytes(path) or b"", delta)
            except (ProtocolError, BrokenHistory) as problem:
                problems.append(f"the snapshot {snapshot.name} is damaged and not used: {problem}")
                continue
            self._keep(other for other in self.ids if other <= snapshot)
            return delta, snapshot, problems
        self.sizes = {}
        return Delta(ClusterImage()), None, problems

    def read_newest(self) -> tuple[Delta, SnapshotId]:
        """Read the newest snapshot, in any thread; errors as `snapshot.read_into`."""
        snapshot, delta = self.ids[-1], Delta(ClusterImage())
        read_into(self._files.read_bytes(f"{self._directory}/{snapshot.name}") or b"", delta)
        return delta, snapshot

    def due(self, bytes_total: int, now_ms: int) -> bool:
        """Whether a snapshot is due; for `bytes_total` see `LogPoint`."""
        if self._last_ms is None:
            self._last_ms = now_ms
        more = bytes_total - self._bytes_covered
        if more <= 0 or now_ms < self._retry_ms:
            return False
        return more > self._limits.bytes_max or 0 < self._limits.interval_ms <= now_ms - self._last_ms

    async def take(self, image: ClusterImage, point: LogPoint, now_ms: int) -> bool:
        snapshot = SnapshotId(point.end_offset, point.epoch)
        path = f"{self._directory}/{snapshot.name}"
        try:
            size = 0
            steps = self._write(path, batches_of(image, snapshot, last_ms=point.appended_ms, now_ms=now_ms))
            while written := await off_loop(functools.partial(next, steps, 0)):
                size = written
                await asyncio.sleep(PAUSE_S)
        except OSError as problem:
            logger.warning("the metadata snapshot %s cannot be written, and is tried again later: %s", path, problem)
            with contextlib.suppress(OSError):  # the next start deletes it, too
                self._files.remove(f"{path.removesuffix(SUFFIX)}{PART}")
            self._retry_ms = now_ms + RETRY_MS
            return False
        if self.sizes and snapshot < self.ids[-1]:
            self._last_ms, self._bytes_covered = now_ms, point.bytes_total
            return False  # one of the leader was installed meanwhile; the next `tidy` deletes the file
        self.sizes[snapshot], self._dated[snapshot] = size, point.appended_ms
        logger.info("the metadata snapshot %s covers %d bytes more", path, point.bytes_total - self._bytes_covered)
        self._last_ms, self._bytes_covered = now_ms, point.bytes_total
        return True

    def _write(self, path: str, batches: Iterator[bytes]) -> Iterator[int]:
        """Write the file; yield its size after each batch."""
        part = self._files.open(f"{path.removesuffix(SUFFIX)}{PART}")
        try:
            part.truncate(0)
            for batch in batches:
                part.append([batch])
                yield part.size
            part.sync()
        finally:
            part.close()
        self._files.rename(f"{path.removesuffix(SUFFIX)}{PART}", path)

    def read(self, snapshot: SnapshotId, position: int, size: int) -> bytes | None:
        """Read a part of a file, in any thread; None if it was deleted."""
        try:
            file = self._files.open_later(f"{self._directory}/{snapshot.name}", position + size)
            try:
                return file.read(position, size)
            finally:
                file.close()
        except FileNotFoundError:
            return None

    def _keep(self, kept: Iterable[SnapshotId]) -> None:
        self.sizes = {snapshot: self.sizes[snapshot] for snapshot in kept}

    def date(self, snapshot: SnapshotId) -> None:
        self._dated[snapshot] = last_contained_ms(self.read(snapshot, 0, _HEADER_BYTES) or b"")

    def expendable(self, log_bytes: int, log_start: int, now_ms: int) -> bool:
        """Whether retention deletes the oldest snapshot, or the log before it.

        As Kafka's `KafkaMetadataLog.maybeClean`.
        """
        if len(self.sizes) < KEPT or (len(self.sizes) == KEPT and log_start >= self.ids[0].offset):
            return False
        limits, dated_ms = self._limits, self._dated.get(self.ids[0], -1)
        if 0 <= limits.retention_bytes < log_bytes + sum(self.sizes.values()):
            return True
        return dated_ms >= 0 and 0 <= limits.retention_ms < now_ms - dated_ms

    def forget_oldest(self) -> None:
        """Forget the oldest, but the newest two; `tidy` deletes its file."""
        self._keep(self.ids[-max(KEPT, len(self.sizes) - 1) :])

    def tidy(self) -> None:
        """Delete forgotten snapshots, in any thread. After an OSError the next call retries.

        One that is newer than all known is being installed.
        """
        known = self.ids
        for file_name in self._files.list(self._directory):
            snapshot = SnapshotId.from_name(file_name)
            if snapshot is not None and snapshot not in known and known and snapshot < known[-1]:
                self._files.remove(f"{self._directory}/{file_name}")
