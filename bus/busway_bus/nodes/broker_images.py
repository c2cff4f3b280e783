"""The images that the broker's parts of a node in a cluster follow.

Here: a queue behind the metadata log: opening logs must not delay the controller on the same node.
Not here: reading the log (`quorum.metadata_images`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import ClusterImage
from busway_bus.quorum.metadata_images import Follower
from busway_bus.quorum.metadata_log import MetadataLog

logger = logging.getLogger("busway.metadata")


class _Step(NamedTuple):
    """A published image, and the offset behind the records before its own."""

    image: ClusterImage
    delta: Delta
    offset: int


class BrokerImages:
    """A `quorum.metadata_images.Published` that begins later than the metadata log.

    Call `collect` before the node joins the quorum, `begin` once it has caught up, and `follow` when all parts have
    subscribed.

    Attributes:
        removed: ids of topics deleted by records of before `begin`.
    """

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata
        self.removed: set[UUID] = set(metadata.removed)
        self._image: ClusterImage | None = None
        """The image that the followers have; None if they have the log's newest."""
        self._begun = self._following = False
        self._offset = 0
        self._steps: deque[_Step] = deque()
        self._followers: list[Follower] = []
        self._watchers: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def image(self) -> ClusterImage:
        return self._metadata.image if self._image is None else self._image

    @property
    def image_offset(self) -> int:
        """The offset of the last record that all followers have followed, or less."""
        return self._metadata.image_offset if self._image is None else self._offset

    @property
    def behind(self) -> bool:
        return self._image is not None

    async def collect(self) -> None:
        """Note deleted topics from now on."""
        await self._metadata.subscribe(self._published)
        self._metadata.watch(self._moved)

    def begin(self) -> None:
        """Keep the current image for all who subscribe; later ones wait for `follow`."""
        self._begun = True
        self._image, self._offset = self._metadata.image, self._metadata.image_offset

    def follow(self) -> None:
        """Publish the images from `begin` on."""
        self._following = True
        self._resume()

    async def subscribe(self, follow: Follower) -> None:
        """Call `follow` with the current image now, and with each new one."""
        self._followers.append(follow)
        image = self.image
        await follow(image, Delta.whole(image))

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` after each new `image`."""
        self._watchers.append(watcher)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition on the metadata log's image, or on `image`."""
        while not condition():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    async def close(self) -> None:
        """Stop after the image that is being followed."""
        self._following = False
        self._steps.clear()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _published(self, image: ClusterImage, delta: Delta) -> None:
        before = self._metadata.image
        if delta.base is not before:  # a snapshot, which does not name what it lacks
            delta.removed.update(
                (topic_id, name) for topic_id, name in before.names.items() if topic_id not in image.names
            )
        if not self._begun:
            self.removed |= delta.removed.keys()
            return
        if self._image is None:
            self._image, self._offset = self._metadata.image, self._metadata.image_offset
        self._steps.append(_Step(image, delta, self._metadata.image_offset))
        self._resume()

    def _moved(self) -> None:
        """Call the watchers for a change that no follower sees."""
        self._wake()
        if self._image is None and self._following:
            self._watched()

    def _resume(self) -> None:
        if self._task is None and self._following:
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            while self._steps and self._following:
                step = self._steps.popleft()
                for follow in self._followers:
                    try:
                        await follow(step.image, step.delta)
                    except Exception:  # the records hold, even if a follower fails
                        logger.exception("a change of the metadata could not be followed on a mistake of this broker")
                self._image, self._offset = step.image, step.offset
                if self._steps:
                    self._watched()
        finally:
            self._task = None
        if self._following and not self._steps:
            # Published now or in the same step of the event loop: it has the newest followed change at least.
            self._image = None
            self._watched()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _watched(self) -> None:
        self._wake()
        for watch in self._watchers:
            watch()
