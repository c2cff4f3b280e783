"""One run of a sink: read topics, convert, transform, write, commit.

Here: the loop.
Not here: bad records (`failures`), restarts (`runner`).

Offsets of the group `connect-NAME` are committed after each `write`: records may repeat but are not lost. So is a
partition's starting position; Kafka Connect commits it only with the first record and can lose earlier ones during a
restart.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Final

from busway import Admin, Consumer, Producer, Record
from busway_connect.connector import RecordRefused, Sink, SinkRecord
from busway_connect.converters.interface import ConversionFailed
from busway_connect.overrides import admin_options, consumer_options, look_every_s, producer_options
from busway_connect.patterns import Pattern, TooLong
from busway_connect.runtime.failures import BadRecord, Failures, TaskFailed
from busway_connect.runtime.loop_yield import LoopYield
from busway_connect.runtime.task_context import TaskContext
from busway_connect.transforms.interface import TransformFailed

POLL_MS: Final = 500


def group_of(connector: str) -> str:
    return f"connect-{connector}"


class SinkTask:
    def __init__(self, sink: Sink, parts: TaskContext) -> None:
        self._sink = sink
        self._parts = parts
        text = parts.config.get("topics.regex", "").strip()
        self._pattern = Pattern(text) if text else None
        self._topics = {topic.strip() for topic in parts.config.get("topics", "").split(",") if topic.strip()}
        self._look_every_s = look_every_s(parts.config)
        self._looked_at = 0.0
        self._announced: set[str] = set()
        self._loop_yield = LoopYield()

    async def run(self, stop: asyncio.Event, resumed: asyncio.Event) -> None:
        """Read and write until `stop` is set; pauses while `resumed` is not.

        Raises:
            Retriable, BuswayError: a system is unreachable.
            TaskFailed: a bad record.
        """
        parts = self._parts
        consumer = Consumer(
            bootstrap_servers=parts.bootstrap,
            client_id=f"connector-consumer-{parts.name}-0",
            group_id=group_of(parts.name),
            enable_auto_commit=False,
            **consumer_options(parts.config, parts.session_timeout_ms),
        )
        dead_letters = Producer(
            parts.bootstrap, client_id=f"connector-dlq-producer-{parts.name}", **producer_options(parts.config)
        )
        async with (
            dead_letters as producer,
            Admin(
                parts.bootstrap, client_id=f"connector-adminclient-{parts.name}", **admin_options(parts.config)
            ) as admin,
            consumer,
        ):
            failures = Failures(parts.name, parts.tolerance, producer)
            await failures.make_topic(admin)
            parts.counts.failures = failures
            await self._sink.start()
            await self._subscribe(consumer, admin)
            await parts.started()
            while not stop.is_set():
                if self._pattern and time.monotonic() - self._looked_at >= self._look_every_s:
                    await self._subscribe(consumer, admin)
                if resumed.is_set():
                    consumer.resume(*consumer.paused())
                else:
                    consumer.pause(*consumer.assignment())
                polled = await consumer.getmany(timeout_ms=POLL_MS)
                self._sink.progress.notes["partitions"] = len(consumer.assignment())
                if polled:
                    await self._deliver([record for records in polled.values() for record in records], failures)
                await consumer.commit()  # also the starting positions of empty partitions
                if polled:
                    parts.counts.offset_commits += 1
                    parts.progressed()

    async def _subscribe(self, consumer: Consumer, admin: Admin) -> None:
        self._looked_at = time.monotonic()
        topics = self._topics
        if self._pattern:
            topics = await asyncio.to_thread(self._matching, await admin.list_topics())
        if topics and (topics != self._topics or not consumer.assignment()):
            await consumer.subscribe(sorted(topics))
        self._topics = topics

    def _matching(self, names: Iterable[str]) -> set[str]:
        """Match topics; runs in a thread. The first name that takes too long ends the task."""
        assert self._pattern is not None
        try:
            return {name for name in names if self._pattern.fullmatch(name)}
        except TooLong as problem:
            raise TaskFailed(f"topics.regex: {problem}") from None

    async def _deliver(self, records: Sequence[Record], failures: Failures) -> None:
        batch: list[SinkRecord] = []
        raw: list[Record] = []
        for record in records:
            await self._announce(record.topic)
            self._parts.counts.polled += 1
            made = await self._made(record, failures)
            if made is not None:
                batch.append(made)
                raw.append(record)
        while batch:
            rest = list(batch)
            try:
                await failures.patiently(lambda rest=rest: self._sink.write(rest))  # type: ignore[misc]
            except RecordRefused as refused:
                at = refused.index
                self._parts.counts.written_records += at
                bad = self._bad(raw[at], "TASK_PUT", type(self._sink).names()[0])
                await failures.refused(lambda bad=bad: bad, refused)  # type: ignore[misc]
                batch, raw = batch[at + 1 :], raw[at + 1 :]
            else:
                self._parts.counts.written_records += len(batch)
                return

    async def _announce(self, topic: str) -> None:
        if topic not in self._announced:
            await self._parts.stores.statuses.add_topic(self._parts.name, topic, time.time_ns() // 1_000_000)
            self._announced.add(topic)

    async def _made(self, record: Record, failures: Failures) -> SinkRecord | None:
        parts = self._parts
        stage, by = "KEY_CONVERTER", type(parts.key_converter).__qualname__
        await self._loop_yield.share()
        try:
            key_schema, key = await failures.patiently(lambda: parts.key_converter.to_connect(record.topic, record.key))
            stage, by = "VALUE_CONVERTER", type(parts.value_converter).__qualname__
            value_schema, value = await failures.patiently(
                lambda: parts.value_converter.to_connect(record.topic, record.value)
            )
            made: SinkRecord | None = SinkRecord(
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                timestamp_ms=record.timestamp_ms,
                key=key,
                key_schema=key_schema,
                value=value,
                value_schema=value_schema,
                headers=record.headers,
            )
            stage = "TRANSFORMATION"
            for transform in parts.transforms:
                by = transform.shown
                if made is None:
                    return None
                made = transform.apply(made)
                await self._loop_yield.share()
        except (ConversionFailed, TransformFailed) as problem:
            bad = self._bad(record, stage, by)
            await failures.refused(lambda: bad, problem)
            return None
        return made

    def _bad(self, record: Record, stage: str, by: str) -> BadRecord:
        source = (record.topic, record.partition, record.offset)
        return BadRecord(key=record.key, value=record.value, headers=record.headers, stage=stage, by=by, source=source)
