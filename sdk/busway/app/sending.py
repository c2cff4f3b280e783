"""Sending by an app.

Here: at once or, from an exactly_once handler, with its transaction; dead letters.
Not here: transactions (`handling.transactor`), the producer (`busway.producer`).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from busway.admin.new_topic import NewTopic
from busway.app.calling.layers import unacknowledged
from busway.app.handling.handler_output import HandlerOutput, current_output
from busway.app.model.topic import BadDeclaration, OpenOutput, Topic
from busway.errors import BuswayError, NotRunning
from busway.net.machine import current_machine
from busway.security.options import PLAINTEXT
from busway.serde.naming import SubjectNaming
from busway.types import Addresses, Headers, ProducerRecord, RecordMetadata, SendOptions

if TYPE_CHECKING:
    from busway.app.serdes import Serdes
    from busway.producer.producer import KeyValueHeaders, Producer

K = TypeVar("K")
V = TypeVar("V")


class Sending(ABC):
    """Sends the records of a running app; arguments as for `App`. `name` is the client id."""

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
        self._mark: Callable[[str, Headers], Headers] | None = None
        """Changes the headers of sent records; None without an extension that does."""

    @property
    def is_running(self) -> bool:
        return self._serdes is not None and self._producer is not None

    @property
    def serdes(self) -> "Serdes":
        if self._serdes is None or self._producer is None:
            raise NotRunning(f"app {self.name} is not running; use `async with app:` or `busway run`")
        return self._serdes

    @property
    def producer(self) -> "Producer":
        if self._producer is None:
            raise NotRunning(f"app {self.name} is not running; use `async with app:` or `busway run`")
        return self._producer

    def new_serdes(self) -> "Serdes":
        """Create serdes for use while the app does not run; the caller closes them."""
        from busway.app.serdes import Serdes

        return Serdes(
            app=self.name, registry_url=self.schema_registry, register=self._register_schemas, naming=self._naming
        )

    @abstractmethod
    def open_output(self, topics: Collection[str], partition: int) -> OpenOutput | None:
        """As `TopicOwner.open_output`."""

    async def send(
        self,
        topic: Topic[K, V],
        value: V | None,
        key: K | None = None,
        **options: Unpack[SendOptions],
    ) -> RecordMetadata:
        """As `Topic.send`."""
        return await (await self._send(self._record(topic, key, value, **options)))

    async def send_soon(
        self,
        topic: Topic[K, V],
        value: V | None,
        key: K | None = None,
        **options: Unpack[SendOptions],
    ) -> "asyncio.Future[RecordMetadata]":
        """As `Topic.send_soon`."""
        future = await self._send(self._record(topic, key, value, **options))
        if (sent := unacknowledged.get()) is None:
            return future
        sent.append(future)
        # The handler may cancel its wait; the record is sent all the same.
        seen = asyncio.shield(future)
        seen.add_done_callback(lambda done: done.cancelled() or done.exception())
        return seen

    async def send_result(self, topic: Topic[K, V], value: V | None, key: K | None) -> None:
        """Send a handler's result without reporting where it was written; the record is finished on acknowledgement."""
        record = self._record(topic, key, value)
        if (output := current_output.get()) is not None:
            await self._keep(output, record)
        elif (sent := unacknowledged.get()) is not None:
            future = await self.producer.send_among(record.topic, record.value, record.key, headers=record.headers)
            if not sent or sent[-1] is not future:
                sent.append(future)

    def _record(
        self,
        topic: Topic[K, V],
        key: K | None,
        value: V | None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> ProducerRecord:
        serdes = self.serdes
        if topic.app is not self or not serdes.knows(topic):
            raise self._undeclared(topic)
        if self._mark is not None:
            headers = self._mark(topic.name, headers)
        key_bytes, value_bytes = serdes.encode(topic, "key", key), serdes.encode(topic, "value", value)
        return ProducerRecord(topic.name, partition, key_bytes, value_bytes, headers, timestamp_ms)

    async def _send(self, record: ProducerRecord) -> "asyncio.Future[RecordMetadata]":
        if (output := current_output.get()) is not None:
            await self._keep(output, record)
            return _kept(record)
        return await self.producer.send(record.topic, record.value, record.key, **record.options)

    async def _keep(self, output: HandlerOutput, record: ProducerRecord) -> None:
        """Queue it until the handler has returned; check now what would be refused then."""
        await self.producer.check(record.topic, record.value, record.key, **record.options)
        output.keep(record)

    async def send_encoded(
        self, topic: Topic[Any, Any], records: "Iterable[KeyValueHeaders]", *, partition: int, linger: bool
    ) -> "list[asyncio.Future[RecordMetadata]]":
        futures = await self.producer.send_many(topic.name, records, partition=partition, linger=linger)
        if (sent := unacknowledged.get()) is not None:
            sent.extend(futures)
        return futures

    async def _send_raw(self, topic: str, value: bytes | None, key: bytes | None, headers: Headers) -> RecordMetadata:
        """Send to a dead-letter topic; creates it, because brokers need not auto-create topics."""
        from busway.admin.missing import create_missing

        try:
            if topic not in self._made:
                await create_missing(self, [NewTopic(topic, -1)])
                self._made.add(topic)
            if (output := current_output.get()) is not None:
                record = ProducerRecord(topic, None, key, value, headers, None)
                await self._keep(output, record)
                return await _kept(record)
            return await (await self.producer.send(topic, value, key, headers=headers))
        except BuswayError:
            self._made.discard(topic)
            raise

    def _undeclared(self, topic: Topic[Any, Any]) -> BadDeclaration:
        return BadDeclaration(f"topic {topic.name} was not declared with app {self.name} before it started")


def _kept(record: ProducerRecord) -> "asyncio.Future[RecordMetadata]":
    """Return the metadata for a record that is sent after the handler; the offset is -1."""
    kept: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
    partition = -1 if record.partition is None else record.partition
    now_ms = current_machine().wall_ms() if record.timestamp_ms is None else record.timestamp_ms
    kept.set_result(RecordMetadata(record.topic, partition, -1, now_ms))
    return kept
