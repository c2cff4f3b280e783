"""Sending by an app.

Here: `Sending`: at once or, from an exactly_once handler, with its transaction; dead letters.
Not here: transactions (`handling.transactor`), the producer (`busway.producer`).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from busway.admin.admin import NewTopic
from busway.admin.missing import create_missing
from busway.app.calling.layers import unacknowledged
from busway.app.handling.handler_output import HandlerOutput, current_output
from busway.app.model.topic import BadDeclaration, Headers, OpenOutput, Outgoing, Topic
from busway.app.serdes import Serdes
from busway.cluster.client import Addresses
from busway.errors import BuswayError, NotRunning
from busway.net.machine import current_machine
from busway.producer.producer import KeyValueHeaders, Producer
from busway.security.options import PLAINTEXT
from busway.serde.naming import SubjectNaming
from busway.types import RecordMetadata

K = TypeVar("K")
V = TypeVar("V")


class Sending(ABC):
    """Send the records of an app while it runs.

    Args:
        name: of the app; its client id.
        bootstrap_servers, schema_registry, register_schemas, subject_naming: as for `App`.
    """

    def __init__(
        self,
        name: str,
        bootstrap_servers: Addresses,
        schema_registry: str | None,
        *,
        register_schemas: bool,
        subject_naming: SubjectNaming,
    ) -> None:
        self.name = name
        self.bootstrap_servers = bootstrap_servers
        self.security = PLAINTEXT
        """TLS and SASL of all its connections to brokers."""
        self.schema_registry = schema_registry
        self._register_schemas = register_schemas
        self._naming = subject_naming
        self._made: set[str] = set()
        self._producer: Producer | None = None
        self._serdes: Serdes | None = None

    @property
    def is_running(self) -> bool:
        """Whether it can send."""
        return self._serdes is not None and self._producer is not None

    @property
    def serdes(self) -> Serdes:
        """The serdes of its topics.

        Raises:
            NotRunning: the app is not running.
        """
        if self._serdes is None or self._producer is None:
            raise NotRunning(f"app {self.name} is not running; use `async with app:` or `busway run`")
        return self._serdes

    @property
    def producer(self) -> Producer:
        """The producer of its records, except those of transactions.

        Raises:
            NotRunning: the app is not running.
        """
        if self._producer is None:
            raise NotRunning(f"app {self.name} is not running; use `async with app:` or `busway run`")
        return self._producer

    def new_serdes(self) -> Serdes:
        """Create serdes with its registry and naming, to send while it does not run; the caller closes them."""
        return Serdes(
            app=self.name, registry_url=self.schema_registry, register=self._register_schemas, naming=self._naming
        )

    @abstractmethod
    def open_output(self, topics: Collection[str], partition: int) -> OpenOutput | None:
        """Return work that commits with the handled records of these topics' partition; None where this instance lacks
        it.
        """

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
        record = Outgoing(topic.name, partition, *self._bytes(topic, key, value), headers, timestamp_ms)
        return await (await self._send(record))

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
        record = Outgoing(topic.name, partition, *self._bytes(topic, key, value), headers, timestamp_ms)
        future = await self._send(record)
        if (sent := unacknowledged.get()) is None:
            return future
        sent.append(future)
        # The handler may cancel its wait; the record is sent all the same.
        seen = asyncio.shield(future)
        seen.add_done_callback(lambda done: done.cancelled() or done.exception())
        return seen

    async def send_result(self, topic: Topic[K, V], value: V | None, key: K | None) -> None:
        """Send a handler's result without reporting where it was written; the record is finished on acknowledgement."""
        record = Outgoing(topic.name, None, *self._bytes(topic, key, value), (), None)
        if (output := current_output.get()) is not None:
            await self._keep(output, record)
        elif (sent := unacknowledged.get()) is not None:
            future = await self.producer.send_among(record.topic, record.value, record.key)
            if not sent or sent[-1] is not future:
                sent.append(future)

    def _bytes(self, topic: Topic[K, V], key: K | None, value: V | None) -> tuple[bytes | None, bytes | None]:
        serdes = self.serdes
        if topic.app is not self or not serdes.knows(topic):
            raise self._undeclared(topic)
        return serdes.encode(topic, "key", key), serdes.encode(topic, "value", value)

    async def _send(self, record: Outgoing) -> "asyncio.Future[RecordMetadata]":
        if (output := current_output.get()) is not None:
            await self._keep(output, record)
            return _kept(record)
        return await self.producer.send(
            record.topic,
            record.value,
            record.key,
            headers=record.headers,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
        )

    async def _keep(self, output: HandlerOutput, record: Outgoing) -> None:
        """Queue it until the handler has returned; check now what would be refused then."""
        await self.producer.check(
            record.topic,
            record.value,
            record.key,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
            headers=record.headers,
        )
        output.keep(record)

    async def send_encoded(
        self, topic: Topic[Any, Any], records: Iterable[KeyValueHeaders], *, partition: int, linger: bool
    ) -> "list[asyncio.Future[RecordMetadata]]":
        """As `Producer.send_many`; in a handler, its record is finished when they are acknowledged."""
        futures = await self.producer.send_many(topic.name, records, partition=partition, linger=linger)
        if (sent := unacknowledged.get()) is not None:
            sent.extend(futures)
        return futures

    async def _send_raw(self, topic: str, value: bytes | None, key: bytes | None, headers: Headers) -> RecordMetadata:
        """Send to a dead-letter topic, which is created here: brokers need not auto-create topics."""
        try:
            if topic not in self._made:
                await create_missing(self, [NewTopic(topic, -1)])
                self._made.add(topic)
            if (output := current_output.get()) is not None:
                record = Outgoing(topic, None, key, value, headers, None)
                await self._keep(output, record)
                return await _kept(record)
            return await (await self.producer.send(topic, value, key, headers=headers))
        except BuswayError:
            self._made.discard(topic)
            raise

    def _undeclared(self, topic: Topic[Any, Any]) -> BadDeclaration:
        return BadDeclaration(f"topic {topic.name} was not declared with app {self.name} before it started")


def _kept(record: Outgoing) -> "asyncio.Future[RecordMetadata]":
    """Return the metadata for a record that is sent after the handler; the offset is -1."""
    kept: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
    partition = -1 if record.partition is None else record.partition
    now_ms = current_machine().wall_ms() if record.timestamp_ms is None else record.timestamp_ms
    kept.set_result(RecordMetadata(record.topic, partition, -1, now_ms))
    return kept
