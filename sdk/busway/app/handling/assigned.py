"""A partition that the app has.

What lives here: `Assigned`: its lanes, how far all of them are, and when it is full. What does not: feeding it (`worker`), committing how
far it is (`commits`, `transactor`).
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from busway.app.handling.attempts import Item
from busway.app.handling.completed_offsets import CompletedOffsets
from busway.app.handling.lane import Lane
from busway.app.model.retry import HandlerFailed
from busway.app.offset_set import OffsetSet
from busway.types import OffsetAndMetadata, Record, TopicPartition

logger = logging.getLogger("busway.app")

OPEN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of the keys and values of a partition's records that not all handlers have finished; above, it is paused."""
LOW_WATER: Final = 4
"""It goes on when no more than this part of what may be open waits for a handler that could take it."""
AHEAD_MAX: Final = 20_000
"""Records between the lowest unfinished one and the last that came; above, the partition is paused. Which of them are finished is
committed with the offset, so that they do not come again; `offset_set` has room for some 800 gaps, what is behind those does."""
REPLAY_HEADER: Final = "busway_replay-for-group"
"""On a record that was replayed for one group alone; others have handled it before."""
REPLAY_HANDLER: Final = "busway_replay-for-handler"
"""And for this one of its handlers; if the group has none of that name any more, all of them get it."""


class Assigned:
    """A partition that the app has: its lanes, and how far all of them are.

    Attributes:
        exactly_once: whether its offsets go into transactions.
        committed: what was committed last; None before anything was.
        open_bytes: of records that not all handlers have finished, or that are not committed yet where they go into transactions.
        is_replaced: whether the topic of its records was deleted and created again.
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
        "lanes",
        "left_at",
        "open_bytes",
        "partition",
        "paused",
        "reset_at",
    )

    def __init__(self, partition: TopicPartition, lanes: Sequence[Lane], done: CompletedOffsets) -> None:
        self.exactly_once = any(lane.exactly_once for lane in lanes)
        self.dropped = self.is_replaced = False
        self.partition = partition
        self.lanes = lanes
        self.done = done
        self.committed: OffsetAndMetadata | None = None
        self.open_bytes = 0
        self.paused = False
        self.closing = False
        self.left_at: int | None = None
        self.reset_at: int | None = None

    def add(self, records: Iterable[Record], group: bytes) -> None:
        """Records arrived, in their order."""
        items: list[Item] = []
        chosen: dict[Item, Sequence[Lane]] = {}
        for record in records:
            if not self.done.follows(record.offset):
                logger.warning("%s-%d goes on at offset %d, behind what came before", *record[:3])
                self.done = CompletedOffsets()  # the topic was made anew; what is under way counts for the old one
            if not self.done.begin(record.offset):
                continue
            if record.headers and is_for_others(record, group):
                self.done.finish(record.offset)
                continue
            lanes = self._lanes_for(record) if record.headers else self.lanes
            items.append(item := Item(self.done, record, len(lanes), self))
            self.open_bytes += item.size
            if lanes is not self.lanes:
                chosen[item] = lanes
        for lane in self.lanes:
            lane.add([item for item in items if lane in chosen.get(item, self.lanes)] if chosen else items)

    def _lanes_for(self, record: Record) -> Sequence[Lane]:
        name = next((value for name, value in record.headers if name == REPLAY_HANDLER), None)
        mine = [lane for lane in self.lanes if lane.name.encode() == name] if name else []
        return mine or self.lanes

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

        Offsets of a topic that was deleted mean nothing in the one that was created: of that only where it is begun counts.

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

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be fetched for now."""
        if self.done.open >= AHEAD_MAX or self.open_bytes >= OPEN_BYTES_MAX:
            return True
        return any(lane.schedule.open >= lane.open_max for lane in self.lanes)

    @property
    def has_room(self) -> bool:
        """Whether a paused partition should go on."""
        for lane in self.lanes:  # asked for each record: the cheap question first
            if lane.schedule.queued > lane.open_max // LOW_WATER:
                return False
        return not self.is_full


def is_for_others(record: Record, group: bytes) -> bool:
    return any(name == REPLAY_HEADER and value != group for name, value in record.headers)
