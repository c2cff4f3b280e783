"""What a consumer has still to commit.

What lives here: offsets behind records that were handed out, and positions that resets and seeks found. What does not: committing them
(`consumer`).
"""

import dataclasses
from collections.abc import Iterable, Mapping

from busway.consumer.fetcher import Fetcher
from busway.types import OffsetAndMetadata, Record, TopicPartition

Offsets = dict[TopicPartition, OffsetAndMetadata]


class Uncommitted:
    """Offsets by partition.

    Args:
        fetcher: knows the position of each partition, and which a reset found.
    """

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._handed_out: Offsets = {}
        self._handled: Offsets = {}
        """What auto commit may commit: records handed out before the last call, so that a crash repeats and never skips."""

    def asks_again(self) -> None:
        """The reader asks for more, so it has handled what it was handed."""
        self._handled.update(self.all_handed_out())

    def hand_out(self, records: Mapping[TopicPartition, list[Record]]) -> None:
        """These records are handed out."""
        self._take_resets()
        for partition, found in records.items():
            self._handed_out[partition] = OffsetAndMetadata(found[-1].offset + 1, "", found[-1].leader_epoch)

    def place(self, partition: TopicPartition, offset: int) -> None:
        """A partition goes on at `offset`, whatever was handed out of it before."""
        self._handed_out.pop(partition, None)
        self._handled[partition] = OffsetAndMetadata(offset)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing is to be committed for these partitions any more."""
        for partition in partitions:
            self._handed_out.pop(partition, None)
            self._handled.pop(partition, None)

    def drop_handled(self) -> None:
        """What was handled cannot be committed any more."""
        self._handled.clear()

    def all_handled(self) -> Offsets:
        """What may be committed although the reader may still be at work on what it was handed last."""
        self._take_resets()
        return dict(self._handled)

    def all_handed_out(self) -> Offsets:
        """Where to go on behind what was handed out, and behind the markers and aborted records that follow it."""
        self._take_resets()
        for partition, offset in self._handed_out.items():
            assigned = self._fetcher.assigned.get(partition)
            if assigned is not None and (assigned.position or 0) > offset.offset:
                self._handed_out[partition] = dataclasses.replace(offset, offset=assigned.position or 0)
        return {**self._handled, **self._handed_out}

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These were committed; what came later stays."""
        for waiting in (self._handled, self._handed_out):
            for partition, offset in offsets.items():
                if waiting.get(partition) == offset:
                    del waiting[partition]

    def _take_resets(self) -> None:
        """Positions that resets have found are committed like those behind records; offsets of a topic that is gone are not."""
        for partition, assigned in self._fetcher.assigned.items():
            if assigned.uncommitted_reset and assigned.reset_at is not None:
                assigned.uncommitted_reset = False
                self.place(partition, assigned.reset_at)
        self.drop([one for one in {*self._handled, *self._handed_out} if self._fetcher.is_of_another_topic(one)])
