"""Exactly-once delivery of a source's records without transactions.

Here: marks on records, finding a topic's last mark, detecting records already written.
Not here: reading and sending (`source_task`).

A source with an order (`Source.position`), such as a write-ahead log, returns the same records again from the same
offset. The stored offset lags behind the produced records, so a crash repeats some. Each record therefore has the
header `__busway.source.position`: `["connector",epoch,{source partition},position,n]`, n counting records of one
position. Before a run's first record to a topic, the worker reads its partitions backwards to this connector's last
mark. The idempotent producer writes in order, so a record is dropped if its partition's last mark is not before its
own.

Marks count only within one source partition and epoch. Altering or deleting offsets (KIP-875) raises the epoch, so that
a reset source writes again. Where no mark counts, the record is written: possibly twice, never lost. That happens when
a topic gets more partitions, records at its end are deleted, or a dead worker's request arrives after the new worker's
check; only transactions prevent that (`transactional`).
"""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from busway import Admin, Record, TopicPartition
from busway_connect.connector import Offset, SourceRecord

HEADER: Final = "__busway.source.position"
_FIRST_STEP: Final = 64
"""Records read first from a partition's end; each further step is four times larger."""

Position = list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    epoch: int
    partition: Mapping[str, Any]
    place: Position
    """The source's position and the count within it."""


def read_mark(record: Record, connector: str) -> Mark | None:
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
    def __init__(self, connector: str, epoch: int, position: Callable[[Offset], Sequence[int | str] | None]) -> None:
        self._connector = connector
        self._epoch = epoch
        self._position = position
        self._last: Position | None = None
        self._count = 0
        self._partition: Mapping[str, Any] | None = None
        self._head = b""

    def mark(self, record: SourceRecord) -> tuple[Mark, bytes] | None:
        """Return the next record's mark, and its header; None for a source without order."""
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
    """A connector's records that topics have already.

    Args:
        read_back: records of a topic from given offsets to the end.
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

    async def look_at(self, topic: str) -> None:
        described = (await self._admin.describe_topics([topic]))[topic]
        partitions = [TopicPartition(topic, info.number) for info in described.partitions]
        self._last.update(await self.last_marks(topic, partitions))

    async def last_marks(self, topic: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Mark]:
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
        last = self._last.get(partition)
        if last is None or last.epoch != mark.epoch or last.partition != mark.partition or last.place < mark.place:
            return False
        self.dropped += 1
        return True
