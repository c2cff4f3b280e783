"""From committed records to the published metadata image.

Here: the order in which changes are followed and published, the replies to their callers.
Not here: committing (`metadata.committing`), decisions (`metadata_log`). This node's own decisions are in memory.
Others', and those from before it was re-elected, are read from the log a batch at a time: memory stays bounded.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from busway_bus.log.partition_log import PartitionLog
from busway_bus.metadata.delta import BrokenHistory, Delta
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum.metadata_snapshots import LogPoint
from busway_bus.quorum.metadata_store import DamagedBatch, apply_batch
from busway_bus.scheduling.off_loop import off_loop
from busway_protocol.errors import KafkaError, ProtocolError
from busway_protocol.records.batch import iter_batches, read_header

logger = logging.getLogger("busway.metadata")

Follower = Callable[[ClusterImage, Delta], Awaitable[None]]
"""Called with each new image and delta; the next change waits.

The delta of a loaded snapshot has all of its records, and not what is missing from it.
"""
Load = Callable[[], tuple[Delta, SnapshotId]]
"""Reads a snapshot, in any thread."""
READ_BYTES: Final = 256 * 1024
"""Bytes of one read, or one batch if that is larger."""


class Published(Protocol):
    """The published images of the metadata, for the parts of a node."""

    @property
    def image(self) -> ClusterImage:
        """The newest one that all followers have followed."""

    async def subscribe(self, follow: Follower) -> None:
        """Call `follow` with the current image now, and with each new one."""

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` after each new `image`."""


class Change(NamedTuple):
    """A decision, or a stand-in for a control record.

    Attributes:
        first_offset: where its records begin; without records it is published when the image covers all offsets before.
        end_offset: the offset behind its records.
        image: the image after it; None if unchanged.
        delta: what its records change; None without records.
        size_bytes, appended_ms, epoch: of its records.
        tell: sends the caller its reply.
    """

    first_offset: int
    end_offset: int
    image: ClusterImage | None = None
    delta: Delta | None = None
    size_bytes: int = 0
    appended_ms: int = -1
    epoch: int = -1
    tell: Callable[[], None] = lambda: None

    @property
    def is_quiet(self) -> bool:
        return self.delta is None or self.delta.quiet


class MetadataImages:
    """The published image, and the changes that wait to be published.

    Attributes:
        image: replaced, never mutated.
        covered: the point of the log up to which `image` goes.
        committed: the offset up to which the log is committed.
        broken: committed records cannot be read, so the image stays as it is.

    Args:
        moved: called when an image is published, before watchers and replies.
    """

    def __init__(
        self, partition_log: PartitionLog, stored: Delta, covered: LogPoint, moved: Callable[[], None]
    ) -> None:
        self._log, self._moved = partition_log, moved
        self.image, self.covered = stored.image(), covered
        self.committed = covered.end_offset
        self.stored = stored
        self._followers: list[Follower] = []
        self._watchers: list[Callable[[], None]] = []
        self._changes: deque[Change] = deque()
        self._read: deque[memoryview] = deque()
        self._load: Load | None = None
        self.publisher: asyncio.Task[None] | None = None
        self.broken = False

    @property
    def waiting(self) -> int:
        return len(self._changes)

    async def subscribe(self, follow: Follower) -> None:
        """Call `follow` with the current image now, and with each new one."""
        self._followers.append(follow)
        await follow(self.image, self.stored)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` after each new `image`, before the caller's reply."""
        self._watchers.append(watcher)

    @property
    def loading(self) -> bool:
        """Whether a snapshot is not published yet that has replaced the log."""
        return self._load is not None

    def load(self, load: Load) -> None:
        """Publish a snapshot next, instead of the log before it, which is gone."""
        self._load = load
        self._read.clear()
        self.resume()

    def add(self, change: Change) -> None:
        """Add a committed change, or a reply that rests on committed records."""
        if change.is_quiet:
            if change.delta is not None:
                change.tell()  # nothing to follow
            if self.publisher is None and change.first_offset <= self.covered.end_offset:
                self._install(change)
                change.tell()
                return
        self._changes.append(change)  # an error, too, is sent once the image covers what it rests on
        self.resume()

    def resume(self) -> None:
        behind = self.loading or self._changes or self.covered.end_offset < self.committed
        if self.publisher is None and not self.broken and behind:
            self.publisher = asyncio.ensure_future(self._publish())

    async def _publish(self) -> None:
        try:
            while (change := await self._loaded() if self.loading else self._next()) is not None:
                if change.delta is not None and change.image is not None:
                    await self._follow(change.image, change.delta)
                self._install(change)
                if change.delta is not None:
                    for watch in self._watchers:
                        watch()
                change.tell()
        except OSError as problem:  # retried when more is committed
            logger.error("%s cannot be read, and is tried again: %s", self._log.directory, problem)
        except (DamagedBatch, ProtocolError, KafkaError) as problem:
            self.broken = True  # later records cannot be followed either
            logger.critical("%s is damaged behind offset %d: %s", self._log.directory, self.covered.end_offset, problem)
        finally:
            self.publisher = None

    async def _loaded(self) -> Change:
        """Read the snapshot. Replies to changes that it covers are sent with it.

        DamagedBatch: its content cannot be applied.
        """
        while (load := self._load) is not None:
            try:
                delta, snapshot = await off_loop(load)
            except (ProtocolError, BrokenHistory) as problem:
                raise DamagedBatch(self.covered.end_offset, problem) from None
            if self._load is load:
                self._load = None
        covered = [change for change in self._changes if change.first_offset < snapshot.offset]
        self._changes = deque(change for change in self._changes if change.first_offset >= snapshot.offset)

        def tell() -> None:
            for change in covered:
                change.tell()

        return Change(
            first_offset=0,
            end_offset=snapshot.offset,
            image=delta.image(),
            delta=delta,
            epoch=snapshot.epoch,
            tell=tell,
        )

    def _next(self) -> Change | None:
        """Take the next change, None if the image covers all committed."""
        offset = self.covered.end_offset
        if self._changes and self._changes[0].first_offset <= offset:
            self._read.clear()
            return self._changes.popleft()
        if offset >= self.committed:
            return None
        if not self._read and self._log.busy:
            return None  # it goes on after the truncation
        if not self._read:
            content = self._log.read(offset, READ_BYTES, up_to=self.committed)
            self._read.extend(memoryview(batch) for _, batch in iter_batches(content))
        if not self._read:
            return None
        delta = Delta(self.image)
        batch = self._read.popleft()
        point = apply_batch(batch, delta, self.covered)
        return Change(
            first_offset=offset,
            end_offset=point.end_offset,
            image=delta.image(),
            delta=None if read_header(batch).is_control else delta,
            size_bytes=len(batch),
            appended_ms=point.appended_ms,
            epoch=point.epoch,
        )

    async def _follow(self, image: ClusterImage, delta: Delta) -> None:
        for follow in self._followers:
            try:
                await follow(image, delta)
            except Exception:  # the records on disk hold, even if a follower fails
                logger.exception("a change of the metadata could not be followed on a mistake of this broker")

    def _install(self, change: Change) -> None:
        if change.image is not None:
            self.image = change.image
        if change.end_offset > self.covered.end_offset:
            self.covered = self.covered.after(change.end_offset, change.appended_ms, change.size_bytes, change.epoch)
        self._moved()
