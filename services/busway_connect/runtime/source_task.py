"""One run of a source: read, transform, convert, produce, and keep its offset behind what is acknowledged.

What lives here: the loop and the order of its steps. What does not: what is there already (`exactly_once`), bad records (`failures`),
starting again (`runner`).

Nothing is lost: an offset is stored only when every record up to it is acknowledged, and only then is the source told `committed`.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from busway import (
    Admin,
    BuswayError,
    MessageTooLarge,
    Producer,
    Record,
    TopicPartition,
    read_to_end,
)
from busway.net.signals import first_of
from busway_connect.connector import Offset, Retriable, Source, SourceRecord
from busway_connect.converters.interface import ConversionFailed, Converter
from busway_connect.converters.json import JsonConverter
from busway_connect.runtime.exactly_once import HEADER, Mark, Marker, Written
from busway_connect.runtime.failures import BadRecord, Failures
from busway_connect.runtime.overrides import producer_options
from busway_connect.runtime.parts import Counts, Stores, TaskParts
from busway_connect.runtime.topics import Creation, create_if_missing
from busway_connect.runtime.turns import Turns
from busway_connect.schema import Schema
from busway_connect.transforms.interface import TransformFailed

IN_FLIGHT_RECORDS: Final = 10_000
"""Records sent and not yet acknowledged; above, the source is not read."""
_ENDLESS_MS: Final = 2**31 - 1
_PAUSE_S: Final = 0.01
"""After a read that brought nothing: a source that does not wait by itself may not keep the others from their turn."""
_OVERHEAD: Final = 100
"""Bytes of a batch and a record beside key and value; headers of a source are few."""


@dataclass(slots=True, kw_only=True)
class _Batch:
    """What one `read` brought."""

    sent: list["asyncio.Future[Any]"] = field(default_factory=list)
    offsets: list[tuple[Mapping[str, Any], Offset]] = field(default_factory=list)

    def reached(self, partition: Mapping[str, Any], offset: Offset) -> None:
        """The batch goes so far in a source partition."""
        if self.offsets and self.offsets[-1][0] == partition:
            self.offsets.pop()
        self.offsets.append((partition, offset))

    def refused(self) -> bool:
        """Whether one of its records will never be acknowledged."""
        return any(waiter.cancelled() or waiter.exception() is not None for waiter in self.sent if waiter.done())


class SourceTask:
    """Runs a source until it is told to stop.

    Args:
        source: not started yet.
        parts: what the worker gives every task.
    """

    def __init__(self, source: Source, parts: TaskParts) -> None:
        self._source = source
        self._parts = parts
        self._config = parts.config
        self._under_way: deque[_Batch] = deque()
        self._begun = _Batch()
        self._in_flight = 0
        self._to_store: dict[str, tuple[Mapping[str, Any], Offset]] = {}
        self._stored_at = time.monotonic()

    @property
    def _stores(self) -> Stores:
        return self._parts.stores

    @property
    def _counts(self) -> Counts:
        return self._parts.counts

    async def run(self, stop: asyncio.Event, resumed: asyncio.Event) -> None:
        """Read and write until `stop` is set; not while `resumed` is not.

        Raises:
            Retriable, BuswayError: something cannot be reached.
            TaskFailed: a record cannot be dealt with.
        """
        parts = self._parts
        epoch = self._stores.configs.epoch(parts.name)
        marker = Marker(parts.name, epoch, self._source.position)
        client_id = f"connector-producer-{parts.name}"
        options = producer_options(parts.config)
        # A batch that gave up would leave a hole before those behind it, so none does: the task ends first, as in Kafka Connect.
        async with (
            Producer(parts.bootstrap, client_id=client_id, delivery_timeout_ms=_ENDLESS_MS, **options) as producer,
            Admin(parts.bootstrap, client_id=f"connector-adminclient-{parts.name}") as admin,
        ):
            written = Written(parts.name, epoch, self._read_back, admin)
            failures = Failures(parts.name, parts.tolerance, producer)
            await failures.make_topic(admin)
            parts.counts.failures = failures
            parts.counts.written = written
            sender = _Sender(parts, producer, admin, written, failures)
            await self._source.start(self._stores.offsets.of(parts.name))
            await parts.started()
            try:
                await self._loop(sender, marker, stop, resumed)
            except Exception:
                with contextlib.suppress(BuswayError, Retriable):
                    await self._end(producer)
                raise
            await self._end(producer)

    def _read_back(self, topic: str, starts: Mapping[int, int]) -> AsyncIterator[Record]:
        return read_to_end(self._parts.bootstrap, topic, starts, starts=starts)

    async def _loop(self, sender: "_Sender", marker: Marker, stop: asyncio.Event, resumed: asyncio.Event) -> None:
        while not stop.is_set():
            if not resumed.is_set():
                await self._settle(everything=True)
                await first_of(stop, resumed)
                continue
            records = await self._source.read()
            batch = self._begun = _Batch()
            for record in records:
                self._counts.polled += 1
                waiter = await sender.send(record, marker.mark(record))
                if waiter is not None:
                    batch.sent.append(waiter)
                batch.reached(record.partition, record.offset)
            self._begun = _Batch()
            if not records:
                await asyncio.sleep(_PAUSE_S)
            else:
                self._under_way.append(batch)
                self._in_flight += len(batch.sent)
                self._parts.progressed()
            await self._settle()
            while self._in_flight > IN_FLIGHT_RECORDS:
                await asyncio.wait(self._under_way[0].sent)
                await self._settle()

    async def _settle(self, *, everything: bool = False) -> None:
        """Take note of what is acknowledged, and store the offset when it is time, or at once for `everything`."""
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
            self._counts.written_records += len(batch.sent)
            for partition, offset in batch.offsets:
                self._to_store[str(sorted(partition.items()))] = (partition, offset)
        now = time.monotonic()
        if self._to_store and (everything or now - self._stored_at >= self._parts.flush_interval_s):
            self._stored_at = now
            chosen, self._to_store = self._to_store, {}
            for partition, offset in chosen.values():
                await self._stores.offsets.put(self._parts.name, partition, offset)
                await self._source.committed(offset)
            self._counts.offset_commits += 1

    async def _end(self, producer: Producer) -> None:
        """Also after a failure: what is acknowledged by then counts, up to the first record that is not."""
        await producer.flush()
        good: deque[_Batch] = deque()
        for batch in self._under_way:
            if batch.refused():
                break
            good.append(batch)
        if len(good) < len(self._under_way) or self._begun.refused():
            # What was sent behind the refused record may be in its partition: the marks must not hide the hole.
            await self._stores.configs.raise_epoch(self._parts.name)
        self._under_way = good
        await self._settle(everything=True)


class _Sender:
    """One record through transforms and converters to its partition."""

    def __init__(
        self, parts: TaskParts, producer: Producer, admin: Admin, written: Written, failures: Failures
    ) -> None:
        self._parts = parts
        self._producer = producer
        self._admin = admin
        self._written = written
        self._failures = failures
        self._readable = JsonConverter({}, is_key=False)
        self._creation = Creation(parts.config)
        self._limits: dict[str, int] = {}
        self._turns = Turns()

    async def send(self, record: SourceRecord, marked: tuple[Mark, bytes] | None) -> "asyncio.Future[Any] | None":
        """On its way; None for a record that is there already, that a transform takes out, or that is passed over."""
        made = await self._made(record)
        if made is None:
            return None
        record, key, value = made
        if record.topic not in self._limits:
            await self._new_topic(record.topic, look=marked is not None)
        partition = None
        headers = record.headers
        if marked is not None:
            mark, header = marked
            partition = await self._producer.partition_for(record.topic, header if key is None else key)
            if self._written.has(TopicPartition(record.topic, partition), mark):
                return None
            headers = (*headers, (HEADER, header))
        try:
            size = len(key or b"") + len(value or b"") + _OVERHEAD
            for limit, name in (
                (self._limits[record.topic], f"max.message.bytes of {record.topic}"),
                (self._producer.options.max_request_size, "producer.override.max.request.size"),
            ):
                if size > limit:
                    raise MessageTooLarge(f"a record of {size} bytes is larger than {name}, {limit}; raise it")
            return await self._producer.send(
                record.topic, value, key, partition=partition, headers=headers, timestamp_ms=record.timestamp_ms
            )
        except MessageTooLarge as problem:
            await self._refuse(record, "KAFKA_PRODUCE", "busway.Producer", problem)
            return None

    async def _made(self, record: SourceRecord) -> tuple[SourceRecord, bytes | None, bytes | None] | None:
        await self._turns.share()
        for transform in self._parts.transforms:
            try:
                changed = transform.apply(record)
            except TransformFailed as problem:
                await self._refuse(record, "TRANSFORMATION", transform.shown, problem)
                return None
            if changed is None:
                return None
            record = changed
            await self._turns.share()
        stage, converter = "KEY_CONVERTER", self._parts.key_converter
        try:
            key = await self._convert(converter, record.topic, record.key_schema, record.key)
            stage, converter = "VALUE_CONVERTER", self._parts.value_converter
            value = await self._convert(converter, record.topic, record.value_schema, record.value)
        except ConversionFailed as problem:
            await self._refuse(record, stage, type(converter).__qualname__, problem)
            return None
        return record, key, value

    async def _convert(self, converter: Converter, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        return await self._failures.patiently(lambda: converter.from_connect(topic, schema, value))

    async def _refuse(self, record: SourceRecord, stage: str, by: str, problem: Exception) -> None:
        key = await self._shown(record.topic, record.key_schema, record.key)
        value = await self._shown(record.topic, record.value_schema, record.value)
        bad = BadRecord(key=key, value=value, headers=record.headers, stage=stage, by=by, source=None)
        await self._failures.refused(lambda: bad, problem)

    async def _shown(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """A source's record never was bytes: among the dead letters it is JSON with its schema, or at worst what Python prints."""
        try:
            return await self._readable.from_connect(topic, schema, value)
        except ConversionFailed:
            return repr(value).encode(errors="replace")

    async def _new_topic(self, topic: str, *, look: bool) -> None:
        wanted = self._creation.topic(topic)
        if wanted is not None:
            await create_if_missing(self._admin, wanted)
        await self._producer.partitions_for(topic)  # asks for it, which makes it where the brokers allow that
        await self._parts.stores.statuses.add_topic(self._parts.name, topic, time.time_ns() // 1_000_000)
        if look:
            await self._written.look_at(topic)
        self._limits[topic] = int((await self._admin.describe_configs(topic))["max.message.bytes"].value or 0)
