"""How far a partition of an app is.

What lives here: `PartitionOffsets`: what is finished, and which offset to commit for it. What does not: its lanes (`assigned`), committing
(`commits`, `transactor`).
"""

from collections.abc import Iterable

from busway.app.handling.completed_offsets import CompletedOffsets
from busway.app.model.retry import HandlerFailed
from busway.app.offset_set import OffsetSet
from busway.types import OffsetAndMetadata, TopicPartition


class PartitionOffsets:
    """Keep what is finished of a partition, and what was committed.

    Attributes:
        done: offsets that are finished.
        exactly_once: whether its offsets go into transactions.
        committed: what was committed last; None before anything was.
        is_replaced: whether the topic of its records was deleted and created again.
        open_bytes: of records that not all handlers have finished, or that are not committed yet where they go into transactions.
        paused: whether its records are not fetched, because it is full.
        closing: whether it is being given up.
        reset_at: where a reset began the partition, for which the group has no offset; None where it goes on from a commit or a seek.
        left_at: where the consumer went on when the partition began to be given up: what comes later is not handled here.
        dropped: nothing of it may go into a transaction any more: it has gone to others, or is begun anew.
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
        self.partition = partition
        self.done = done
        self.exactly_once = exactly_once
        self.committed: OffsetAndMetadata | None = None
        self.open_bytes = 0
        self.paused = False
        self.closing = False
        self.dropped = self.is_replaced = False
        self.left_at: int | None = None
        self.reset_at: int | None = None

    def committable(self, place: int | None) -> OffsetAndMetadata | None:
        """What to commit; None while there is nothing.

        Args:
            place: where the consumer goes on: behind markers and aborted records that follow the last one, too.
        """
        found = self.done.all_finished
        if found is None:
            return None if self.reset_at is None else self._begun_at(self.reset_at)
        if place is not None and (place < found.below or (not self.done.open and place > found.below)):
            found = OffsetSet(place)  # below: a reset went back, and nothing was handed out since
        return OffsetAndMetadata(found.below, found.short_text)

    def committable_with(self, offsets: Iterable[int], place: int | None) -> OffsetAndMetadata | None:
        """What to commit together with these, which are finished when it is; None while it is not known.

        Offsets of a deleted topic mean nothing in the one that replaced it: only the position there counts.

        Raises:
            HandlerFailed: what is finished ahead does not fit into the metadata of an offset, and would come again.
        """
        if self.is_replaced:
            return None if place is None else OffsetAndMetadata(place)
        done = self.done.with_finished(offsets)
        found = done.all_finished
        if found is None:
            known = place if self.reset_at is None else self.reset_at
            return None if known is None else self._begun_at(known)
        if place is not None and (place < found.below or (not done.open and place > found.below)):
            found = OffsetSet(place)
        if (text := found.short_text) != found.text:
            raise self.too_much_ahead(found.below, "the metadata of an offset can tell")
        return OffsetAndMetadata(found.below, text)

    def _begun_at(self, place: int) -> OffsetAndMetadata:
        """Return what to commit while nothing is finished: not beyond records that came before the place was found."""
        return OffsetAndMetadata(place if self.done.first < 0 else min(place, self.done.first))

    def is_behind(self, place: int | None) -> bool:
        """Return whether all records are finished and the offset can be moved on past what is none: markers, aborted records, a reset.

        Raises:
            HandlerFailed: as `committable_with`.
        """
        begun = self.committed is not None or self.done.first >= 0
        if (begun and not self.done.open) or (self.committed is None and self.reset_at is not None):
            return self.committable_with((), place) != self.committed
        return False

    def too_much_ahead(self, below: int, bound: str) -> HandlerFailed:
        """That what is finished ahead of an offset cannot be kept beside it."""
        return HandlerFailed(
            f"{self.partition.topic}-{self.partition.partition}: more records are finished ahead of offset {below}, which is not, than "
            f"{bound}; with exactly_once they may not come again, so lower concurrency or raise the bound"
        )
