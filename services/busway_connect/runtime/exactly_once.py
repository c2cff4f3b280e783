"""How a source's records come into the topics exactly once, without transactions.

What lives here: the mark on each record, the search for the last one in a topic, and which records are there already. What does not:
reading and sending (`source_task`).

A source that knows its order (`Source.position`) hands the same records over again when it is started with the same offset: a
write-ahead log does. The stored offset lags behind what was produced, so after a crash some records come that the topics hold already.
Each record therefore carries the header `__busway.source.position`: `["connector",epoch,{source partition},position,n]`, n counting
records that share a position. Before the first record of a run goes to a topic, the worker reads the end of each of its partitions
back to the last mark of this connector. The idempotent producer writes each partition in order, so what a partition holds is a
beginning of what was sent to it: a record is dropped if its partition's last mark is at or behind its own.

The mark counts only within one source partition and one epoch. The epoch goes up whenever a person alters or deletes the offsets
(KIP-875), so that a source that was sent back on purpose writes again. Where a mark does not count, a record is written: at worst it is
doubled, never lost. That can be when a topic got more partitions, when the records at its end were deleted, or when a request of
the dead worker reaches the broker only after the new one has looked: fencing that out takes transactions (`transactional`).
"""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from busway import Admin, Record, TopicPartition
from busway_connect.connector import Offset, SourceRecord

HEADER: Final = "__busway.source.position"
_FIRST_STEP: Final = 64
"""Records looked at first at the end of a partition; then four times as many each time, to the beginning."""

Position = list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What the header says: where a record came from."""

    epoch: int
    partition: Mapping[str, Any]
    place: Position
    """The source's position with the count of records that share it."""


def read_mark(record: Record, connector: str) -> Mark | None:
    """The mark that this connector put on a record, if it did."""
    for name, value in record.headers:
        if name == HEADER and value is not None:
            try:
                fields = json.loads(value)
                if fields[0] == connector:
                    return Mark(epoch=fields[1], partition=fields[2], place=[*fields[3], fields[4]])
            except (ValueError, LookupError, TypeError):
                return None
    return None


class Marker:
    """Gives each record of a run its mark.

    Args:
        connector, epoch: whose records they are.
        position: the source's.
    """

    def __init__(self, connector: str, epoch: int, position: Callable[[Offset], Sequence[int | str] | None]) -> None:
        self._connector = connector
        self._epoch = epoch
        self._position = position
        self._last: Position | None = None
        self._count = 0
        self._partition: Mapping[str, Any] | None = None
        self._head = b""

    def mark(self, record: SourceRecord) -> tuple[Mark, bytes] | None:
        """The next record's, and as a header; None where the source does not know its order."""
        place = self._position(record.offset)
        if place is None:
            return None
        position = list(place)
        self._count = self._count + 1 if position == self._last and record.partition == self._partition else 0
        self._last = position
        if record.partition != self._partition:
            self._partition = record.partition
            head = [self._connector, self._epoch, dict(record.partition)]
            self._head = json.dumps(head, separators=(",", ":"))[:-1].encode()
        body = json.dumps(position, separators=(",", ":"))
        mark = Mark(epoch=self._epoch, partition=record.partition, place=[*position, self._count])
        return mark, b"%b,%b,%d]" % (self._head, body.encode(), self._count)


class Written:
    """What of a connector's records is in the topics already.

    Args:
        connector, epoch: whose.
        read_back: the records of a topic's partitions from given offsets to the end.
        admin: started.
    """

    def __init__(
        self,
        connector: str,
        epoch: int,
        read_back: Callable[[str, Mapping[int, int]], AsyncIterator[Record]],
        admin: Admin,
    ) -> None:
        self._connector = connector
        self._epoch = epoch
        self._read_back = read_back
        self._admin = admin
        self._last: dict[TopicPartition, Mark] = {}
        self.dropped = 0
        """Records that were there already."""

    async def look_at(self, topic: str) -> None:
        """Find the last mark in each partition of a topic."""
        described = (await self._admin.describe_topics([topic]))[topic]
        partitions = [TopicPartition(topic, info.number) for info in described.partitions]
        self._last.update(await self.last_marks(topic, partitions))

    async def last_marks(self, topic: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Mark]:
        """The last mark of this connector in each of these partitions of one topic, where there is one."""
        wanted = list(partitions)
        firsts = await self._admin.list_offsets(dict.fromkeys(wanted, -2))
        ends = await self._admin.list_offsets(dict.fromkeys(wanted, -1))
        open_ones = {partition: ends[partition] for partition in wanted if firsts[partition] < ends[partition]}
        marks: dict[TopicPartition, Mark] = {}
        step = _FIRST_STEP
        while open_ones:
            starts = {partition: max(firsts[partition], before - step) for partition, before in open_ones.items()}
            at = {partition.partition: start for partition, start in starts.items()}
            async for record in self._read_back(topic, at):
                mark = read_mark(record, self._connector)
                if mark is not None:
                    marks[TopicPartition(topic, record.partition)] = mark
            open_ones = {
                partition: start
                for partition, start in starts.items()
                if partition not in marks and start > firsts[partition]
            }
            step *= 4
        return marks

    def has(self, partition: TopicPartition, mark: Mark) -> bool:
        """Whether the record with this mark is in that partition already."""
        last = self._last.get(partition)
        if last is None or last.epoch != mark.epoch or last.partition != mark.partition or last.place < mark.place:
            return False
        self.dropped += 1
        return True
