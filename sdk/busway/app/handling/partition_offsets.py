"""Offsets of one partition of an app.

Here: what is finished, and the offset to commit.
Not here: lanes (`assigned_partition`), committing (`commits`, `transactor`).
"""

from collections.abc import Iterable

from busway.app.handling.completed_offsets import CompletedOffsets
from busway.app.model.retry import HandlerFailed
from busway.app.offset_set import OffsetSet
from busway.types import OffsetAndMetadata, TopicPartition


class PartitionOffsets:
    """Finished and committed offsets of a partition.

    Attributes:
        committed: the last commit; None before the first.
        is_replaced: whether the topic of its records was deleted and created again.
        open_bytes: of records that are not finished or, with exactly_once, not committed.
        reset_at: where a reset started the partition, for which the group has no offset; None after a commit or a seek.
        left_at: the consumer's position when the revocation began; later records are not handled here.
        dropped: lost or restarted; nothing of it may enter a transaction any more.
    """

    __slots__ = (
        "closing",
        "committed",
        "done",
        "dropped",
        "exactly_once",
        "is_replaced",
        "left_at",
        "open_bytes",
        "partition",
        "paused",
        "reset_at",
    )

    def __init__(self, partition: TopicPartition, done: CompletedOffsets, *, exactly_once: bool) -> None:
        self.partition: TopicPartition = partition
        self.done: CompletedOffsets = done
        self.exactly_once: bool = exactly_once
        self.committed: OffsetAndMetadata | None = None
        self.open_bytes: int = 0
        self.paused: bool = False
        self.closing: bool = False
        self.dropped: bool = False
        self.is_replaced: bool = False
        self.left_at: int | None = None
        self.reset_at: int | None = None

    def forget_completed(self) -> None:
        """Begin again: the topic was created again, and records in progress belong to the old one."""
        self.done = CompletedOffsets()

    def committable(self, position: int | None) -> OffsetAndMetadata | None:
        """Return what to commit; None for nothing.

        `position` is the consumer's, also behind markers and aborted records after the last record.
        """
        finished = self.done.all_finished
        if finished is None:
            return None if self.reset_at is None else self._begun_at(self.reset_at)
        if position is not None and (position < finished.below or (not self.done.open and position > finished.below)):
            finished = OffsetSet(position)  # below: a reset went back, and no record was delivered since
        return OffsetAndMetadata(finished.below, finished.short_text)

    def committable_with(self, offsets: Iterable[int], position: int | None) -> OffsetAndMetadata | None:
        """Return what to commit in a transaction that finishes these offsets; None while unknown.

        Offsets of a deleted topic are meaningless in its successor: only the position there counts.

        Raises:
            HandlerFailed: what is finished ahead exceeds the metadata of an offset, and would be redelivered.
        """
        if self.is_replaced:
            return None if position is None else OffsetAndMetadata(position)
        done = self.done.with_finished(offsets)
        finished = done.all_finished
        if finished is None:
            known = position if self.reset_at is None else self.reset_at
            return None if known is None else self._begun_at(known)
        if position is not None and (position < finished.below or (not done.open and position > finished.below)):
            finished = OffsetSet(position)
        if (text := finished.short_text) != finished.text:
            raise self.too_much_ahead(finished.below, "the metadata of an offset can tell")
        return OffsetAndMetadata(finished.below, text)

    def _begun_at(self, position: int) -> OffsetAndMetadata:
        """Return what to commit while nothing is finished: at most the first received record."""
        return OffsetAndMetadata(position if self.done.first < 0 else min(position, self.done.first))

    def is_behind(self, position: int | None) -> bool:
        begun = self.committed is not None or self.done.first >= 0
        if (begun and not self.done.open) or (self.committed is None and self.reset_at is not None):
            return self.committable_with((), position) != self.committed
        return False

    def too_much_ahead(self, below: int, bound: str) -> HandlerFailed:
        return HandlerFailed(
            f"{self.partition.topic}-{self.partition.partition}: more records are finished ahead of offset {below}, which is not, than "
            f"{bound}; with exactly_once they may not come again, so lower concurrency or raise the bound"
        )
