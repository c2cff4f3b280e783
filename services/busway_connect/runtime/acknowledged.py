"""Source offsets stored after acknowledgements: for workers without transactions.

Here: records in flight, and storing an offset once all records before it are acknowledged; only then is the source's
`committed` called, so nothing is lost.
Not here: records in a topic already (`exactly_once`), the loop (`source_task`).
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from busway import Admin, Producer, Record, read_to_end
from busway_connect.connector import Source, SourceRecord
from busway_connect.overrides import producer_options, producer_security
from busway_connect.runtime.delivery import Reached
from busway_connect.runtime.exactly_once import Mark, Marker, Written
from busway_connect.runtime.task_context import TaskContext

IN_FLIGHT_RECORDS: Final = 10_000
"""Limit of unacknowledged records; above it the source is not read."""
_ENDLESS_MS: Final = 2**31 - 1


@dataclass(slots=True, kw_only=True)
class _Batch:
    sent: list["asyncio.Future[Any]"] = field(default_factory=list)
    offsets: Reached = field(default_factory=Reached)

    def refused(self) -> bool:
        return any(waiter.cancelled() or waiter.exception() is not None for waiter in self.sent if waiter.done())


class Acknowledged:
    def __init__(self, parts: TaskContext, source: Source, producer: Producer, admin: Admin) -> None:
        self.producer = self.dead_letters = producer
        self._parts = parts
        self._source = source
        epoch = parts.stores.configs.epoch(parts.name)
        self._marker = Marker(parts.name, epoch, source.position)
        self.written: Written | None = Written(parts.name, epoch, self._read_back, admin)
        self._under_way: deque[_Batch] = deque()
        self._begun = _Batch()
        self._in_flight = 0
        self._to_store = Reached()
        self._stored_at = time.monotonic()

    def _read_back(self, topic: str, starts: Mapping[int, int]) -> AsyncIterator[Record]:
        return read_to_end(
            self._parts.bootstrap, topic, starts, starts=starts, security=producer_security(self._parts.config)
        )

    def begin(self) -> None:
        self._begun = _Batch()

    def mark(self, record: SourceRecord) -> tuple[Mark, bytes] | None:
        return self._marker.mark(record)

    async def sending(self, topic: str) -> None:
        """Do nothing: at least once needs no preparation."""

    async def took(self, record: SourceRecord, waiter: "asyncio.Future[Any] | None") -> None:
        if waiter is not None:
            self._begun.sent.append(waiter)
        self._begun.offsets.add(record)

    async def batch_over(self) -> None:
        """Store acknowledged offsets when due; wait while too many records are in flight."""
        if self._begun.offsets:
            self._under_way.append(self._begun)
            self._in_flight += len(self._begun.sent)
        self._begun = _Batch()
        await self._settle()
        while self._in_flight > IN_FLIGHT_RECORDS:
            await asyncio.wait(self._under_way[0].sent)
            await self._settle()

    async def pause(self) -> None:
        await self._settle(everything=True)

    async def _settle(self, *, everything: bool = False) -> None:
        """Process acknowledgements, and store offsets when due; with `everything` wait for all and store at once."""
        if everything:
            for batch in self._under_way:
                if batch.sent:
                    await asyncio.wait(batch.sent)
        while self._under_way and all(waiter.done() for waiter in self._under_way[0].sent):
            batch = self._under_way[0]
            for waiter in batch.sent:
                waiter.result()
            self._under_way.popleft()
            self._in_flight -= len(batch.sent)
            self._parts.counts.written_records += len(batch.sent)
            self._to_store.join(batch.offsets)
        now = time.monotonic()
        if self._to_store and (everything or now - self._stored_at >= self._parts.flush_interval_s):
            self._stored_at = now
            for partition, offset in self._to_store.take():
                await self._parts.stores.offsets.put(self._parts.name, partition, offset)
                await self._source.committed(offset)
            self._parts.counts.offset_commits += 1

    async def end(self, *, failed: bool) -> None:
        """Store acknowledged offsets up to the first refused batch, also after failures."""
        await self.producer.flush()
        good: deque[_Batch] = deque()
        for batch in self._under_way:
            if batch.refused():
                break
            good.append(batch)
        if len(good) < len(self._under_way) or self._begun.refused():
            # Later records may be in the refused record's partition: their marks must not hide the hole.
            await self._parts.stores.configs.raise_epoch(self._parts.name)
        self._under_way = good
        await self._settle(everything=True)


@contextlib.asynccontextmanager
async def acknowledged(parts: TaskContext, source: Source, admin: Admin) -> AsyncIterator[Acknowledged]:
    # No delivery timeout: a dropped batch would leave a hole before later ones. The task ends first, like in Kafka Connect.
    async with Producer(
        parts.bootstrap,
        client_id=f"connector-producer-{parts.name}",
        delivery_timeout_ms=_ENDLESS_MS,
        **producer_options(parts.config),
    ) as producer:
        yield Acknowledged(parts, source, producer, admin)
