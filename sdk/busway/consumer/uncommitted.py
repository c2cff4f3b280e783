"""Uncommitted offsets of a consumer.

Not here: committing (`offsets`), permission to commit (`handed_out`).
"""

import dataclasses
from collections.abc import Iterable, Mapping
from uuid import UUID

from busway.consumer.fetcher import Fetcher
from busway.types import OffsetAndMetadata, TopicPartition

Offsets = dict[TopicPartition, OffsetAndMetadata]


class Uncommitted:
    """Offsets for the next commit.

    Records count as handled at the next poll: a crash repeats the last ones and skips none.
    """

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._handed_out: Offsets = {}
        self._handled: Offsets = {}
        self._places: Offsets = {}
        self._topics: dict[TopicPartition, UUID | None] = {}

    def polling(self) -> None:
        """Count everything handed out as handled."""
        self._handled.update(self.all())

    def hand_out(self, partition: TopicPartition, behind: OffsetAndMetadata) -> None:
        self._handed_out[partition] = behind
        self._topics[partition] = self._fetcher.read_topic_id(partition)
        self._places.pop(partition, None)

    def place(self, partition: TopicPartition, offset: int) -> None:
        self._handed_out.pop(partition, None)
        self._begin(partition, OffsetAndMetadata(offset))

    def _begin(self, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        self._handled[partition] = self._places[partition] = offset
        self._topics[partition] = self._fetcher.read_topic_id(partition)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            for known in (self._handed_out, self._handled, self._places, self._topics):
                known.pop(partition, None)

    def take_resets(self) -> None:
        """Take positions found by resets; drop offsets of recreated topics."""
        self.forget(
            [
                partition
                for partition, topic_id in self._topics.items()
                if self._fetcher.is_replaced(partition, topic_id)
            ]
        )
        for partition, assigned in self._fetcher.assigned.items():
            if assigned.uncommitted_reset and assigned.reset_at is not None:
                assigned.uncommitted_reset = False
                self._reset(partition, OffsetAndMetadata(assigned.reset_at))

    def _reset(self, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        """Record a reset; records being processed may lie before it."""
        handled = self._handled.get(partition)
        if partition in self._handed_out:
            self._handed_out[partition] = offset
        if partition not in self._handed_out or (handled is not None and handled.offset > offset.offset):
            self._begin(partition, offset)

    def places(self) -> Offsets:
        self.take_resets()
        return {
            partition: offset for partition, offset in self._places.items() if self._handled.get(partition) is offset
        }

    def placed(self, places: Offsets) -> None:
        for partition, offset in places.items():
            if self._handled.get(partition) is offset:
                del self._handled[partition]

    def handled(self) -> Offsets:
        """Return what may be committed while the last records are processed."""
        self.take_resets()
        return dict(self._handled)

    def all(self) -> Offsets:
        """Return offsets behind everything handed out, with following markers and aborted records."""
        self.take_resets()
        for partition, offset in self._handed_out.items():
            assigned = self._fetcher.assigned.get(partition)
            if assigned is not None and (assigned.position or 0) > offset.offset:
                self._handed_out[partition] = dataclasses.replace(offset, offset=assigned.position or 0)
        return {**self._handled, **self._handed_out}

    def all_of(self, partitions: Iterable[TopicPartition]) -> Offsets:
        known = self.all()
        return {partition: known[partition] for partition in partitions if partition in known}

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], before: Offsets) -> None:
        """Forget offsets not behind the commit; `before` is `handled` at its begin, later offsets stay."""
        for partition, offset in offsets.items():
            for waiting in (self._handled, self._handed_out):
                if waiting.get(partition) == offset:
                    del waiting[partition]
            if partition in before and self._handled.get(partition) is before[partition]:
                del self._handled[partition]
