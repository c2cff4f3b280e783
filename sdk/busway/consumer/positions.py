"""Where a consumer goes on in its partitions.

What lives here: positions, seeks, pauses and look-ups of offsets, as a part of `Consumer`. What does not: reading and commits (`consumer`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Final

from busway.cluster.client import ClusterClient
from busway.consumer.fetcher import Fetcher
from busway.consumer.handed_out import HandedOut
from busway.consumer.offset_lookup import EARLIEST, LATEST
from busway.consumer.uncommitted import Uncommitted
from busway.errors import RequestTimedOut
from busway.net.clock import REAL_TIME
from busway.options import ConsumerOptions
from busway.types import OffsetAndTimestamp, TopicPartition

_POSITION_S: Final = 0.01


class Positions(ABC):
    """The methods of `Consumer` that look at positions and change them."""

    options: ConsumerOptions
    _cluster: ClusterClient
    _fetcher: Fetcher
    _uncommitted: Uncommitted
    _given: HandedOut

    @abstractmethod
    def _check(self) -> None:
        """Raise what keeps the consumer from reading."""

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record; waits until it is known.

        Raises:
            ValueError: the partition is not assigned to this consumer.
            RequestTimedOut: it is not known within request_timeout_ms, because the partition does not exist or has no leader.
        """
        deadline = REAL_TIME.now_s() + self.options.request_timeout_ms / 1000
        while True:
            self._check()
            found = self._fetcher.assigned.get(partition)
            if found is None:
                raise ValueError(f"{partition.topic}-{partition.partition} is not assigned to this consumer")
            if found.position is not None:
                return found.position
            if REAL_TIME.now_s() >= deadline:
                count = self._cluster.metadata.counts().get(partition.topic, 0)
                raise RequestTimedOut(
                    f"the position of {partition.topic}-{partition.partition} is not known after {self.options.request_timeout_ms} ms; "
                    f"the topic has {count} partitions, numbered from 0"
                )
            await REAL_TIME.sleep(_POSITION_S)

    def place(self, partition: TopicPartition) -> int | None:
        """As `position`, and None while it is not known, is one in a topic that was deleted, or the partition is not assigned."""
        if self._fetcher.is_replaced(partition, self._fetcher.read_topic_id(partition)):
            return None
        return getattr(self._fetcher.assigned.get(partition), "position", None)

    def is_replaced(self, partition: TopicPartition) -> bool:
        """Return whether the topic of the records handed out last was deleted and created again."""
        return bool(self._given.of_replaced_topics([partition]))

    def reset_at(self, partition: TopicPartition) -> int | None:
        """The position that a reset found for a partition; None where it was committed or sought, or is not known."""
        return getattr(self._fetcher.assigned.get(partition), "reset_at", None)

    def tenure(self, partition: TopicPartition) -> int | None:
        """Return a number that stays the same while the partition is assigned without a break; None while it is not."""
        return getattr(self._fetcher.assigned.get(partition), "tenure", None)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`, which is committed like any other position."""
        self._find(partition).seek(offset)
        self._uncommitted.place(partition, offset)
        self._given.sought(partition)
        self._fetcher.wake()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit nothing of what was handed out of these partitions, neither by `commit()` nor automatically."""
        self._uncommitted.forget(partitions)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first record of these partitions, or of all."""
        self._reset("earliest", partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record of these partitions, or of all."""
        self._reset("latest", partitions)

    def _reset(self, policy: str, partitions: Iterable[TopicPartition]) -> None:
        for partition in tuple(partitions) or tuple(self._fetcher.assigned):
            found = self._find(partition)
            found.forget()
            found.position, found.reset, found.gone = None, policy, None
            found.reset_at, found.uncommitted_reset = None, False
            self.forget([partition])
            self._given.sought(partition)
        self._fetcher.wake()

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions until they are resumed; the group is not left."""
        for partition in partitions:
            self._find(partition).paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand these partitions out again."""
        for partition in partitions:
            self._find(partition).paused = False
        self._fetcher.wake()

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(key for key, found in self._fetcher.assigned.items() if found.paused)

    def _find(self, partition: TopicPartition) -> Any:
        found = self._fetcher.assigned.get(partition)
        if found is None:
            raise ValueError(f"{partition.topic}-{partition.partition} is not assigned to this consumer")
        return found

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return await self._fetcher.look_ups.ends(partitions, EARLIEST)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, open_too: bool = False
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record of each partition; at read_committed, unless `open_too`, before the first open transaction."""
        return await self._fetcher.look_ups.ends(partitions, LATEST, open_too=open_too)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a moment in each partition, None where there is none."""
        return await self._fetcher.look_ups.until_answered(dict(timestamps_ms))
