"""From committed records to the picture that is followed.

What lives here: the order in which changes are followed and become the picture, and telling those who asked for them. What does not: how records
come to be committed (`metadata.committing`), and what is decided (`metadata_log`). What this node decided itself is at hand; what others did, and what it did
before it was elected again, is read from the log, a batch at a time, so that it takes no more memory however much there is.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from busway_bus.log.partition_log import PartitionLog
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import ClusterImage
from busway_bus.quorum.metadata_snapshots import LogPoint
from busway_bus.quorum.metadata_store import DamagedBatch, apply_batch
from busway_protocol.errors import KafkaError, ProtocolError
from busway_protocol.records.batch import iter_batches, read_header

logger = logging.getLogger("busway.metadata")

Follower = Callable[[ClusterImage, Delta], Awaitable[None]]
"""Told of every new image and of what differs in its topics; the next change is told when it returns."""
READ_BYTES: Final = 256 * 1024
"""Of the log that are read at a time, or one batch."""


class Change(NamedTuple):
    """What was decided, or stands for a control record.

    Attributes:
        first_offset: where its records begin; what has none is told when all before this offset is in the picture.
        end_offset: behind its records.
        image: the picture with it; None where that is the one before it.
        delta: what its records change; None where there are none.
        size_bytes, appended_ms, epoch: of its records.
        tell: gives whoever asked the reply.
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
        """Whether there is nothing to follow."""
        return self.delta is None or self.delta.quiet


class MetadataImages:
    """The picture, and what becomes it next.

    Attributes:
        image: the picture that is followed. Replaced, never changed.
        covered: up to where the log is in it.
        committed: up to where it is committed.
        broken: whether what is committed cannot be read, so that the picture stays as it is.

    Args:
        moved: called when there is a new picture and nobody is told of it yet.
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
        self.publisher: asyncio.Task[None] | None = None
        self.broken = False

    @property
    def waiting(self) -> int:
        """How many changes wait to be followed."""
        return len(self._changes)

    async def subscribe(self, follow: Follower) -> None:
        """Tell `follow` of the current image now, and of every new one."""
        self._followers.append(follow)
        await follow(self.image, self.stored)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` whenever there is a new `image`, before whoever asked for the change is told."""
        self._watchers.append(watcher)

    def add(self, change: Change) -> None:
        """A change of this node's is committed, or rests on what is."""
        if change.is_quiet:
            if change.delta is not None:
                change.tell()  # there is nothing to follow
            if self.publisher is None and change.first_offset <= self.covered.end_offset:
                self._picture(change)
                change.tell()
                return
        self._changes.append(change)  # a refusal, too, is told when the picture shows what it rests on
        self.go_on()

    def go_on(self) -> None:
        """Have followed what can be."""
        if self.publisher is None and not self.broken and (self._changes or self.covered.end_offset < self.committed):
            self.publisher = asyncio.ensure_future(self._publish())

    async def _publish(self) -> None:
        """Have one change followed after the other, and tell those who asked for it."""
        try:
            while (change := self._next()) is not None:
                if change.delta is not None and change.image is not None:
                    await self._follow(change.image, change.delta)
                self._picture(change)
                if change.delta is not None:
                    for watch in self._watchers:
                        watch()
                change.tell()
        except OSError as problem:  # tried again when there is more
            logger.error("%s cannot be read, and is tried again: %s", self._log.directory, problem)
        except (DamagedBatch, ProtocolError, KafkaError) as problem:
            self.broken = True  # what comes behind it cannot be followed either
            logger.critical("%s is damaged behind offset %d: %s", self._log.directory, self.covered.end_offset, problem)
        finally:
            self.publisher = None

    def _next(self) -> Change | None:
        """The change that comes next, None where nothing is committed that is not in the picture."""
        offset = self.covered.end_offset
        if self._changes and self._changes[0].first_offset <= offset:
            self._read.clear()
            return self._changes.popleft()
        if offset >= self.committed:
            return None
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
            except Exception:  # what is on disk is true, whatever became of following it
                logger.exception("a change of the metadata could not be followed on a mistake of this broker")

    def _picture(self, change: Change) -> None:
        """What was followed is the picture from now on."""
        if change.image is not None:
            self.image = change.image
        if change.end_offset > self.covered.end_offset:
            self.covered = self.covered.after(change.end_offset, change.appended_ms, change.size_bytes, change.epoch)
        self._moved()
