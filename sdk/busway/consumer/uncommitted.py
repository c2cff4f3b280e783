"""Offsets of a consumer that are not committed yet.

What lives here: what was handed out, what of it counts as handled, and the positions that resets and seeks chose. What does not: committing
(`offsets`), who may commit (`handed_out`).
"""

import dataclasses
from collections.abc import Iterable, Mapping

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

    def polling(self) -> None:
        """Take what was handed out for handled: the program asks for more."""
        self._handled.update(self.all())

    def hand_out(self, partition: TopicPartition, behind: OffsetAndMetadata) -> None:
        """Note the offset behind records that the program gets."""
        self._handed_out[partition] = behind

    def place(self, partition: TopicPartition, offset: int) -> None:
        """Go on at an offset, whatever was handed out of the partition before."""
        self._handed_out.pop(partition, None)
        self._handled[partition] = OffsetAndMetadata(offset)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit nothing of these partitions."""
        for partition in partitions:
            self._handed_out.pop(partition, None)
            self._handled.pop(partition, None)

    def forget_handled(self) -> None:
        """Commit nothing of what was handled so far."""
        self._handled.clear()

    def take_resets(self) -> None:
        """Take the positions that resets have found; forget offsets of a topic that was deleted and created again."""
        for partition, assigned in self._fetcher.assigned.items():
            if assigned.uncommitted_reset and assigned.reset_at is not None:
                assigned.uncommitted_reset = False
                self._reset(partition, OffsetAndMetadata(assigned.reset_at))
        self.forget([one for one in {*self._handled, *self._handed_out} if self._fetcher.is_of_another_topic(one)])

    def _reset(self, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        """Go on where a reset has found it; what is still being worked on may lie before that."""
        handled = self._handled.get(partition)
        if partition in self._handed_out:
            self._handed_out[partition] = offset
        if partition not in self._handed_out or (handled is not None and handled.offset > offset.offset):
            self._handled[partition] = offset

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
