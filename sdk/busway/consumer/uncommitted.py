"""Offsets of a consumer that are not committed yet.

What lives here: what was handed out, what of it counts as handled, and the positions that resets and seeks chose. What does not: committing
(`offsets`), who may commit (`handed_out`).
"""

import dataclasses
from collections.abc import Iterable, Mapping
from uuid import UUID

from busway.consumer.fetcher import Fetcher
from busway.types import OffsetAndMetadata, TopicPartition

Offsets = dict[TopicPartition, OffsetAndMetadata]


class Uncommitted:
    """The offsets that a commit takes along.

    Records count as handled when the program asks for more: a crash repeats the last ones and skips none.
    """

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._handed_out: Offsets = {}
        self._handled: Offsets = {}
        self._places: Offsets = {}
        """Of what was handled: positions that resets and seeks chose, with no record handed out since."""
        self._topics: dict[TopicPartition, UUID | None] = {}
        """Of each partition the id of the topic that its offsets are of."""

    def polling(self) -> None:
        """Take what was handed out for handled: the program asks for more."""
        self._handled.update(self.all())

    def hand_out(self, partition: TopicPartition, behind: OffsetAndMetadata) -> None:
        """Note the offset behind records that the program gets."""
        self._handed_out[partition] = behind
        self._topics[partition] = self._fetcher.read_topic_id(partition)
        self._places.pop(partition, None)

    def place(self, partition: TopicPartition, offset: int) -> None:
        """Go on at an offset, whatever was handed out of the partition before."""
        self._handed_out.pop(partition, None)
        self._begin(partition, OffsetAndMetadata(offset))

    def _begin(self, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        self._handled[partition] = self._places[partition] = offset
        self._topics[partition] = self._fetcher.read_topic_id(partition)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit nothing of these partitions."""
        for partition in partitions:
            for known in (self._handed_out, self._handled, self._places, self._topics):
                known.pop(partition, None)

    def take_resets(self) -> None:
        """Take the positions that resets have found; forget offsets of a topic that was deleted and created again."""
        self.forget([one for one, topic_id in self._topics.items() if self._fetcher.is_replaced(one, topic_id)])
        for partition, assigned in self._fetcher.assigned.items():
            if assigned.uncommitted_reset and assigned.reset_at is not None:
                assigned.uncommitted_reset = False
                self._reset(partition, OffsetAndMetadata(assigned.reset_at))

    def _reset(self, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        """Go on where a reset has found it; what is still being worked on may lie before that."""
        handled = self._handled.get(partition)
        if partition in self._handed_out:
            self._handed_out[partition] = offset
        if partition not in self._handed_out or (handled is not None and handled.offset > offset.offset):
            self._begin(partition, offset)

    def places(self) -> Offsets:
        """Return positions that resets and seeks chose, of partitions without a record since."""
        self.take_resets()
        return {one: offset for one, offset in self._places.items() if self._handled.get(one) is offset}

    def placed(self, places: Offsets) -> None:
        """Note that these of `places` are committed; what was chosen or handed out meanwhile stays."""
        for partition, offset in places.items():
            if self._handled.get(partition) is offset:
                del self._handled[partition]

    def handled(self) -> Offsets:
        """Return what may be committed although the program may still work on what it was handed last."""
        self.take_resets()
        return dict(self._handled)

    def all(self) -> Offsets:
        """Return where to go on behind all that was handed out, and behind the markers and aborted records that follow it."""
        self.take_resets()
        for partition, offset in self._handed_out.items():
            assigned = self._fetcher.assigned.get(partition)
            if assigned is not None and (assigned.position or 0) > offset.offset:
                self._handed_out[partition] = dataclasses.replace(offset, offset=assigned.position or 0)
        return {**self._handled, **self._handed_out}

    def all_of(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return what `all` has of these partitions."""
        known = self.all()
        return {one: known[one] for one in partitions if one in known}

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], before: Offsets) -> None:
        """Forget offsets that are committed, and those from before the commit; later ones stay.

        Args:
            offsets: what was committed.
            before: what `handled` returned when the commit began.
        """
        for partition, offset in offsets.items():
            for waiting in (self._handled, self._handed_out):
                if waiting.get(partition) == offset:
                    del waiting[partition]
            if partition in before and self._handled.get(partition) is before[partition]:
                del self._handled[partition]
