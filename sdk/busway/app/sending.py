"""What an app sends.

What lives here: `Sending`: into a topic at once, or, from a handler that is exactly_once, with what else the handler leaves behind; dead
letters. What does not: transactions (`handling.transactor`), the producer (`busway.producer`).
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from busway.admin.admin import NewTopic
from busway.app.declaring.routes import BadDeclaration, Headers, Topic
from busway.app.handling.calls import unacknowledged
from busway.app.handling.work import Outgoing, Work, work
from busway.app.topics import create_missing
from busway.errors import BuswayError
from busway.net.machine import current_machine
from busway.producer.producer import KeyValueHeaders
from busway.types import RecordMetadata

if TYPE_CHECKING:
    from busway.app.bus import App

K = TypeVar("K")
V = TypeVar("V")


class Sending:
    """The sending part of an `App`."""

    name: str
    _made: set[str]

    async def send(
        self,
        topic: Topic[K, V],
        value: V | None,
        key: K | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """As `Topic.send`."""
        future = await self._send(topic, value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
        return await future

    async def send_soon(
        self,
        topic: Topic[K, V],
        value: V | None,
        key: K | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> "asyncio.Future[RecordMetadata]":
        """As `Topic.send_soon`."""
        future = await self._send(topic, value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
        if (sent := unacknowledged.get()) is None:
            return future
        sent.append(future)
        # The handler may cancel what it waits for; the record is on its way all the same.
        seen = asyncio.shield(future)
        seen.add_done_callback(lambda done: done.cancelled() or done.exception())
        return seen

    async def _send(
        self,
        topic: Topic[K, V],
        value: V | None,
        key: K | None,
        *,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> "asyncio.Future[RecordMetadata]":
        app = cast("App", self)
        serdes, producer = app.serdes, app.producer
        if topic.app is not app or not serdes.knows(topic):
            raise self._undeclared(topic)
        record = Outgoing(
            topic.name,
            partition,
            serdes.encode(topic, "key", key),
            serdes.encode(topic, "value", value),
            headers,
            timestamp_ms,
        )
        if (mine := work.get()) is not None:
            return await self._keep(mine, record)
        return await producer.send(
            record.topic,
            record.value,
            record.key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
        )

    async def _keep(self, mine: Work, record: Outgoing) -> "asyncio.Future[RecordMetadata]":
        """Have it sent when the handler has returned; refused now is what would be refused then."""
        await cast("App", self).producer.check(
            record.topic,
            record.value,
            record.key,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
            headers=record.headers,
        )
        mine.keep(record)
        kept: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        number = -1 if record.partition is None else record.partition
        now_ms = current_machine().wall_ms() if record.timestamp_ms is None else record.timestamp_ms
        kept.set_result(RecordMetadata(record.topic, number, -1, now_ms))
        return kept

    async def send_encoded(
        self, topic: Topic[Any, Any], records: Iterable[KeyValueHeaders], *, partition: int, linger: bool
    ) -> "list[asyncio.Future[RecordMetadata]]":
        """As `Producer.send_many`; in a handler, its record is finished when they are acknowledged."""
        futures = await cast("App", self).producer.send_many(topic.name, records, partition=partition, linger=linger)
        if (sent := unacknowledged.get()) is not None:
            sent.extend(futures)
        return futures

    async def _send_raw(self, topic: str, value: bytes | None, key: bytes | None, headers: Headers) -> RecordMetadata:
        """To a dead-letter topic, which is made here: brokers need not make topics by themselves."""
        app = cast("App", self)
        try:
            if topic not in self._made:
                await create_missing(app, [NewTopic(topic, -1)])
                self._made.add(topic)
            if (mine := work.get()) is not None:
                return await (await self._keep(mine, Outgoing(topic, None, key, value, headers, None)))
            return await (await app.producer.send(topic, value, key, headers=headers))
        except BuswayError:
            self._made.discard(topic)
            raise

    def _undeclared(self, topic: Topic[Any, Any]) -> BadDeclaration:
        return BadDeclaration(f"topic {topic.name} was not declared with app {self.name} before it started")
