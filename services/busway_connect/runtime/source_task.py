"""One run of a source: read, transform, convert, produce.

Here: the loop.
Not here: delivery (`acknowledged`, `transactional`), bad records (`failures`), restarts (`runner`).
"""

import asyncio
import contextlib
import time
from typing import Any, Final

from busway import Admin, BuswayError, MessageTooLarge, TopicPartition
from busway.net.signals import first_of
from busway_connect.connector import Retriable, Source, SourceRecord
from busway_connect.converters.interface import ConversionFailed, Converter
from busway_connect.converters.json import JsonConverter
from busway_connect.overrides import admin_options
from busway_connect.runtime.acknowledged import acknowledged
from busway_connect.runtime.delivery import Delivery
from busway_connect.runtime.exactly_once import HEADER, Mark
from busway_connect.runtime.failures import BadRecord, Failures
from busway_connect.runtime.loop_yield import LoopYield
from busway_connect.runtime.task_context import TaskContext
from busway_connect.runtime.topics import create_if_missing
from busway_connect.runtime.transactional import transactional
from busway_connect.schema import Schema
from busway_connect.topic_creation import Creation
from busway_connect.transforms.interface import TransformFailed

_PAUSE_S: Final = 0.01
"""Pause after an empty read, for sources that return at once."""
_OVERHEAD: Final = 100
"""Bytes of a batch and record beside key and value; a source's headers are few."""


class SourceTask:
    def __init__(self, source: Source, parts: TaskContext) -> None:
        self._source = source
        self._parts = parts

    async def run(self, stop: asyncio.Event, resumed: asyncio.Event) -> None:
        """Read and write until `stop` is set; pauses while `resumed` is not. Errors as in `SinkTask.run`."""
        parts, source = self._parts, self._source
        async with (
            Admin(
                parts.bootstrap, client_id=f"connector-adminclient-{parts.name}", **admin_options(parts.config)
            ) as admin,
            self._delivered(admin) as delivery,
        ):
            failures = Failures(parts.name, parts.tolerance, delivery.dead_letters)
            await failures.make_topic(admin)
            parts.counts.failures = failures
            parts.counts.written = delivery.written
            sender = _Sender(parts, delivery, admin, failures)
            await source.start(parts.stores.offsets.of(parts.name))
            await parts.started()
            try:
                await self._loop(sender, delivery, stop, resumed)
            except Exception:
                with contextlib.suppress(BuswayError, Retriable):
                    await delivery.end(failed=True)
                raise
            await delivery.end(failed=False)

    def _delivered(self, admin: Admin) -> contextlib.AbstractAsyncContextManager[Delivery]:
        name = self._parts.transactional_id
        if name is None:
            return acknowledged(self._parts, self._source, admin)
        return transactional(self._parts, self._source, name)

    async def _loop(self, sender: "_Sender", delivery: Delivery, stop: asyncio.Event, resumed: asyncio.Event) -> None:
        while not stop.is_set():
            if not resumed.is_set():
                await delivery.pause()
                await first_of(stop, resumed)
                continue
            records = await self._source.read()
            delivery.begin()
            for record in records:
                self._parts.counts.polled += 1
                waiter = await sender.send(record, delivery.mark(record))
                await delivery.took(record, waiter)
            if not records:
                await asyncio.sleep(_PAUSE_S)
            else:
                self._parts.progressed()
            await delivery.batch_over()


class _Sender:
    def __init__(self, parts: TaskContext, delivery: Delivery, admin: Admin, failures: Failures) -> None:
        self._parts = parts
        self._delivery = delivery
        self._producer = delivery.producer
        self._admin = admin
        self._written = delivery.written
        self._failures = failures
        self._readable = JsonConverter({}, is_key=False)
        self._creation = Creation(parts.config)
        self._limits: dict[str, int] = {}
        self._loop_yield = LoopYield()

    async def send(self, record: SourceRecord, marked: tuple[Mark, bytes] | None) -> "asyncio.Future[Any] | None":
        """Send a record; None if it is written already, dropped by a transform, or skipped."""
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
            if self._written is not None and self._written.has(TopicPartition(record.topic, partition), mark):
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
            await self._delivery.sending(record.topic)
            return await self._producer.send(
                record.topic, value, key, partition=partition, headers=headers, timestamp_ms=record.timestamp_ms
            )
        except MessageTooLarge as problem:
            await self._refuse(record, "KAFKA_PRODUCE", "busway.Producer", problem)
            return None

    async def _made(self, record: SourceRecord) -> tuple[SourceRecord, bytes | None, bytes | None] | None:
        await self._loop_yield.share()
        for transform in self._parts.transforms:
            try:
                changed = transform.apply(record)
            except TransformFailed as problem:
                await self._refuse(record, "TRANSFORMATION", transform.shown, problem)
                return None
            if changed is None:
                return None
            record = changed
            await self._loop_yield.share()
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
        """Return a source record's bytes for a dead letter: JSON with its schema, or at worst Python's repr."""
        try:
            return await self._readable.from_connect(topic, schema, value)
        except ConversionFailed:
            return repr(value).encode(errors="replace")

    async def _new_topic(self, topic: str, *, look: bool) -> None:
        wanted = self._creation.topic(topic)
        if wanted is not None:
            await create_if_missing(self._admin, wanted)
        await self._producer.partitions_for(topic)  # the metadata request creates the topic if the brokers allow it
        await self._parts.stores.statuses.add_topic(self._parts.name, topic, time.time_ns() // 1_000_000)
        if look and self._written is not None:
            await self._written.look_at(topic)
        self._limits[topic] = int((await self._admin.describe_configs(topic))["max.message.bytes"].value or 0)
