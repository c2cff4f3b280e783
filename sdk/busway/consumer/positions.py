"""Positions of a consumer: seeks, pauses and lookups, a base class of `Consumer`.

Not here: reading and commits (`consumer`).
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
    options: ConsumerOptions
    _cluster: ClusterClient
    _fetcher: Fetcher
    _uncommitted: Uncommitted
    _given: HandedOut

    @abstractmethod
    def _check(self) -> None:
        """Raise what keeps the consumer from reading."""

    async def position(self, partition: TopicPartition) -> int:
        """Wait for the offset of the next record.

        Raises:
            ValueError: the partition is not assigned.
            RequestTimedOut: it is unknown after request_timeout_ms: the partition does not exist or has no leader.
        """
        deadline = REAL_TIME.now_s() + self.options.request_timeout_ms / 1000
        while True:
            self._check()
            assigned = self._fetcher.assigned.get(partition)
            if assigned is None:
                raise ValueError(f"{partition.topic}-{partition.partition} is not assigned to this consumer")
            if assigned.position is not None:
                return assigned.position
            if REAL_TIME.now_s() >= deadline:
                count = self._cluster.metadata.counts().get(partition.topic, 0)
                raise RequestTimedOut(
                    f"the position of {partition.topic}-{partition.partition} is not known after {self.options.request_timeout_ms} ms; "
                    f"the topic has {count} partitions, numbered from 0"
                )
            await REAL_TIME.sleep(_POSITION_S)

    def known_position(self, partition: TopicPartition) -> int | None:
        """Return `position`; None if it is unknown, in a deleted topic, or the partition is not assigned."""
        if self._fetcher.is_replaced(partition, self._fetcher.read_topic_id(partition)):
            return None
        return getattr(self._fetcher.assigned.get(partition), "position", None)

    def is_replaced(self, partition: TopicPartition) -> bool:
        """Return whether the topic of the records handed out last was deleted and created again."""
        return bool(self._given.of_replaced_topics([partition]))

    def reset_at(self, partition: TopicPartition) -> int | None:
        """Return the position that a reset chose; None after a commit or seek."""
        return getattr(self._fetcher.assigned.get(partition), "reset_at", None)

    def tenure(self, partition: TopicPartition) -> int | None:
        """Return a number that is constant while the partition stays assigned, else None."""
        return getattr(self._fetcher.assigned.get(partition), "tenure", None)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`, which is committed like any other position."""
        self._find(partition).seek(offset)
        self._uncommitted.place(partition, offset)
        self._given.sought(partition)
        self._fetcher.wake()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Never commit what was handed out of these partitions, automatically or by `commit()`."""
        self._uncommitted.forget(partitions)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first record (default: of all partitions)."""
        self._reset("earliest", partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue behind the last record (default: of all partitions)."""
        self._reset("latest", partitions)

    def _reset(self, policy: str, partitions: Iterable[TopicPartition]) -> None:
        for partition in tuple(partitions) or tuple(self._fetcher.assigned):
            assigned = self._find(partition)
            assigned.forget()
            assigned.position, assigned.reset, assigned.gone = None, policy, None
            assigned.reset_at, assigned.uncommitted_reset = None, False
            self.forget([partition])
            self._given.sought(partition)
        self._fetcher.wake()

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing until `resume`; the group is not left."""
        for partition in partitions:
            self._find(partition).paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand out records again."""
        for partition in partitions:
            self._find(partition).paused = False
        self._fetcher.wake()

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return frozenset(key for key, assigned in self._fetcher.assigned.items() if assigned.paused)

    def _find(self, partition: TopicPartition) -> Any:
        assigned = self._fetcher.assigned.get(partition)
        if assigned is None:
            raise ValueError(f"{partition.topic}-{partition.partition} is not assigned to this consumer")
        return assigned

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offsets."""
        return await self._fetcher.look_ups.ends(partitions, EARLIEST)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, open_too: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the offsets behind the last records.

        At read_committed they lie before the first open transaction, unless `open_too`.
        """
        return await self._fetcher.look_ups.ends(partitions, LATEST, open_too=open_too)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a timestamp; None without one."""
        return await self._fetcher.look_ups.until_answered(dict(timestamps_ms))
