"""Both layers of the service: the stream's newest positions, and the store.

Here: keeping the two in step as partitions come and go and the store grows.
Not here: the rule by which they meet (`domain.meet`), reading the store (`store`).

When a partition comes, its records are read again from the store's end on, whatever was committed: that fills the speed layer. For the
tables this is harmless, since each row knows the last position in it.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from busway import Extension, RunningService, TopicPartition
from ingestion import domain, store
from ingestion.events import Position

logger = logging.getLogger("ingestion")
LOOK_EVERY_S: Final = 2.0
"""How often the store is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A truck's positions from both layers.

    Attributes:
        truck_id: whose.
        store_reaches: by partition, the offset at which the store ends and the stream begins.
        gaps: what neither layer has; empty unless the store is not written for a long time.
        entries: by offset.
    """

    truck_id: str
    store_reaches: Mapping[int, int]
    gaps: tuple[domain.Gap, ...]
    entries: tuple[domain.Entry, ...]


class Layers(Extension):
    """The speed layer in memory, and the batch layer on disk.

    Args:
        topic: whose positions.
        folder: `OUT/<topic>` of the offload job.
        recent_most: see `domain.Recent`.
    """

    def __init__(self, topic: str, folder: Path, *, recent_most: int = domain.RECENT_MOST) -> None:
        self.topic = topic
        self.folder = folder
        self.snapshot = store.Snapshot()
        self.recent: dict[int, domain.Recent] = {}
        self._recent_most = recent_most
        self._looking: asyncio.Task[None] | None = None

    def add(self, partition: int, offset: int, position: Position) -> None:
        """A position has come."""
        if (recent := self.recent.get(partition)) is not None:
            recent.add(offset, position)

    async def history(self, truck_id: str) -> History:
        """A truck's positions, each once: from the store up to its end, from the stream after it."""
        # No await between the two: this is one moment of both layers, and stays whole however long the files take.
        snapshot = self.snapshot
        joint = domain.meet(snapshot.ends, self.recent, truck_id)
        stored = await asyncio.to_thread(snapshot.of, truck_id)
        return History(
            truck_id=truck_id,
            store_reaches=joint.ends,
            gaps=joint.gaps,
            entries=domain.each_once((*stored, *joint.entries)),
        )

    async def look(self) -> None:
        """See how far the store reaches now; what it has leaves memory.

        Raises:
            BadStore: it cannot be read; all stays as it was.
        """
        snapshot = await asyncio.to_thread(store.newest, self.folder, self.snapshot)
        self.snapshot = snapshot
        for partition, recent in self.recent.items():
            recent.stored(snapshot.ends.get(partition, 0))

    # What the app does

    async def starting(self, app: RunningService) -> None:
        """Read how far the store reaches, and look again and again."""
        await self.look()
        self._looking = asyncio.ensure_future(self._keep_looking())

    async def stopped(self, app: RunningService) -> None:
        """Let go of both."""
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.wait([looking])
        self.recent.clear()
        self.snapshot = store.Snapshot()

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Begin at the store's end."""
        own_partitions = [
            partition
            for partition in partitions
            if partition.topic == self.topic and partition.partition not in self.recent
        ]
        starts = {partition: self.snapshot.ends.get(partition.partition, 0) for partition in own_partitions}
        for partition, start in starts.items():
            self.recent[partition.partition] = domain.Recent(start, most=self._recent_most)
        return starts

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Another instance has them now."""
        for partition in partitions:
            if partition.topic == self.topic:
                self.recent.pop(partition.partition, None)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self.look()
            except store.BadStore as problem:
                logger.error("the store is as it was before: %s", problem)
