"""An assigned partition of the app.

Here: its lanes, their records, its bounds.
Not here: its offsets (`partition_offsets`), feeding it (`worker`).
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from busway.app.dead_letters.headers import REPLAY_HANDLER, is_for_others
from busway.app.handling.completed_offsets import CompletedOffsets
from busway.app.handling.in_flight_record import InFlightRecord
from busway.app.handling.lane import Lane
from busway.app.handling.partition_offsets import PartitionOffsets
from busway.types import Record, TopicPartition

logger: logging.Logger = logging.getLogger("busway.app")

OPEN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of keys and values of a partition's unfinished records; above, it is paused."""
LOW_WATER: Final = 4
"""A paused partition resumes when each handler has at most 1/LOW_WATER of its bound queued."""
AHEAD_MAX: Final = 20_000
"""Records between the lowest unfinished one and the last received; above, the partition is paused.

Finished ones are committed as metadata. `offset_set` has room for some 800 gaps; records behind those are redelivered.
"""


class AssignedPartition(PartitionOffsets):
    """An assigned partition with its lanes and offsets."""

    __slots__ = ("lanes",)

    def __init__(self, partition: TopicPartition, lanes: Sequence[Lane], done: CompletedOffsets) -> None:
        super().__init__(partition, done, exactly_once=any(lane.exactly_once for lane in lanes))
        self.lanes: Sequence[Lane] = lanes
        self.open_bytes: int = 0

    def add(self, records: Iterable[Record], group: bytes) -> None:
        items: list[InFlightRecord] = []
        chosen: dict[InFlightRecord, Sequence[Lane]] = {}
        for record in records:
            if not self.done.follows(record.offset):
                logger.warning("%s-%d continues at offset %d, behind what came before", *record[:3])
                self.forget_completed()
            if not self.done.begin(record.offset):
                continue
            if record.headers and is_for_others(record, group):
                self.done.finish(record.offset)
                continue
            lanes = self._lanes_for(record) if record.headers else self.lanes
            items.append(item := InFlightRecord(self.done, record, len(lanes), self))
            self.open_bytes += item.size
            if lanes is not self.lanes:
                chosen[item] = lanes
        for lane in self.lanes:
            lane.add([item for item in items if lane in chosen.get(item, self.lanes)] if chosen else items)

    def _lanes_for(self, record: Record) -> Sequence[Lane]:
        name = next((value for name, value in record.headers if name == REPLAY_HANDLER), None)
        chosen = [lane for lane in self.lanes if lane.name.encode() == name] if name else []
        return chosen or self.lanes

    @property
    def is_full(self) -> bool:
        if self.done.open >= AHEAD_MAX or self.open_bytes >= OPEN_BYTES_MAX:
            return True
        return any(lane.schedule.open >= lane.open_max for lane in self.lanes)

    @property
    def has_room(self) -> bool:
        for lane in self.lanes:  # called for each record: the cheap check first
            if lane.schedule.queued > lane.open_max // LOW_WATER:
                return False
        return not self.is_full
