"""Snapshots of the metadata log on disk: so that a start need not replay all that ever was, and the log can lose its beginning.

What lives here: when one is due, writing it beside the event loop, which ones stay, and which one a start begins with. What does not: what
is in it (`metadata.snapshot`). A file counts from the moment it has its name, which it gets when it is on disk whole. The newest and the
one before it stay, with the log from there on, so that a damaged one costs nothing.
"""

import asyncio
import functools
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from busway_bus.kernel.files import Files
from busway_bus.metadata.delta import BrokenHistory, Delta
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.snapshot import SUFFIX, SnapshotId, batches_of, read_into
from busway_bus.scheduling.off_loop import off_loop
from busway_protocol.errors import ProtocolError

logger = logging.getLogger("busway.metadata")

KEPT: Final = 2
"""Snapshots that stay."""
PART: Final = f"{SUFFIX}.part"
"""The ending of a file that is not whole yet, as Kafka's."""
RETRY_MS: Final = 60_000
"""How long after one that could not be written none is tried."""
PAUSE_S: Final = 0.002
"""Between two batches, so that writing a snapshot takes a part of a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLimits:
    """When a snapshot is due: after so many bytes of records, or so many ms since the last where there is any; 0 is never."""

    bytes_max: int = 20 * 1024 * 1024
    interval_ms: int = 3_600_000


class LogPoint(NamedTuple):
    """Up to where the log is in a picture.

    Attributes:
        end_offset: behind the last record.
        appended_ms: when that was appended.
        bytes_total: what the log got by then since the snapshot that the start began with.
        epoch: of the leader that wrote it.
    """

    end_offset: int
    appended_ms: int
    bytes_total: int
    epoch: int

    def after(self, end_offset: int, appended_ms: int, size_bytes: int, epoch: int) -> "LogPoint":
        """The point behind one batch more."""
        return LogPoint(end_offset, appended_ms, self.bytes_total + size_bytes, epoch)


class MetadataSnapshots:
    """The snapshots in the metadata log's directory.

    Attributes:
        ids: those that are whole, as far as is known, oldest first.
    """

    def __init__(self, files: Files, directory: str, limits: SnapshotLimits) -> None:
        self._files = files
        self._directory = directory
        self._limits = limits
        snapshots = (SnapshotId.from_name(name) for name in files.list(directory))
        self.ids = sorted(snapshot for snapshot in snapshots if snapshot is not None)
        self._bytes_covered = 0
        self._last_ms: int | None = None
        self._retry_ms = 0

    @property
    def flushed(self) -> int:
        """How far the log is known to be on disk: what was flushed alone gets into a snapshot."""
        return self.ids[-1].offset if self.ids else 0

    def load(self) -> tuple[Delta, SnapshotId | None, list[str]]:
        """The newest snapshot that can be read: what it says, which one it is, and what is wrong with others. An empty picture and None where
        there is none."""
        problems = []
        for snapshot in reversed(self.ids):
            path = f"{self._directory}/{snapshot.name}"
            delta = Delta(ClusterImage())
            try:
                read_into(self._files.read_bytes(path) or b"", delta)
            except (ProtocolError, BrokenHistory) as problem:
                problems.append(f"the snapshot {snapshot.name} is damaged and not used: {problem}")
                continue
            self.ids = [snapshot_id for snapshot_id in self.ids if snapshot_id <= snapshot]
            return delta, snapshot, problems
        self.ids = []
        return Delta(ClusterImage()), None, problems

    def due(self, bytes_total: int, now_ms: int) -> bool:
        """Whether there is to be one now.

        Args:
            bytes_total: what the log got since the snapshot that the start began with.
        """
        if self._last_ms is None:
            self._last_ms = now_ms
        more = bytes_total - self._bytes_covered
        if more <= 0 or now_ms < self._retry_ms:
            return False
        return more > self._limits.bytes_max or 0 < self._limits.interval_ms <= now_ms - self._last_ms

    async def take(self, image: ClusterImage, point: LogPoint, now_ms: int) -> bool:
        """Write a snapshot of the picture at a point of the log, a batch at a time in other threads; answers whether it is there."""
        snapshot = SnapshotId(point.end_offset, point.epoch)
        path = f"{self._directory}/{snapshot.name}"
        try:
            steps = self._write(path, batches_of(image, snapshot, last_ms=point.appended_ms, now_ms=now_ms))
            while await off_loop(functools.partial(next, steps, False)):  # noqa: ASYNC110 - a rest, there is no event to wait for
                await asyncio.sleep(PAUSE_S)
        except OSError as problem:
            logger.warning("the metadata snapshot %s cannot be written, and is tried again later: %s", path, problem)
            self._retry_ms = now_ms + RETRY_MS
            return False
        self.ids.append(snapshot)
        logger.info("the metadata snapshot %s covers %d bytes more", path, point.bytes_total - self._bytes_covered)
        self._last_ms, self._bytes_covered = now_ms, point.bytes_total
        return True

    def _write(self, path: str, batches: Iterator[bytes]) -> Iterator[bool]:
        part = self._files.open(f"{path.removesuffix(SUFFIX)}{PART}")
        try:
            part.truncate(0)
            for batch in batches:
                part.append([batch])
                yield True
            part.sync()
        finally:
            part.close()
        self._files.rename(f"{path.removesuffix(SUFFIX)}{PART}", path)

    def tidy(self) -> None:
        """Remove what the newest ones cover, in any thread; what is missing of that is done the next time.

        Raises:
            OSError: the disk failed.
        """
        self.ids = self.ids[-KEPT:]
        names = {snapshot.name for snapshot in self.ids}
        for file_name in self._files.list(self._directory):
            if file_name.endswith((SUFFIX, PART)) and file_name not in names:
                self._files.remove(f"{self._directory}/{file_name}")
