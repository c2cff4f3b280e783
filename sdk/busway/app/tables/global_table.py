"""`app.global_table(…)`: a whole topic in the memory of every instance.

Here: loading it, following it in the background, writing to it.
Not here: rows (`rows`), rows divided among the instances (`table`).

It is for data that every instance needs and few change. Readers lag behind writers by the time of a fetch.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from busway.admin.new_topic import NewTopic
from busway.app.extending.extension import Extension
from busway.app.model.topic import Topic
from busway.app.service import RunningService
from busway.app.tables.rows import RowOrigin, Rows
from busway.app.tables.table import COMPACT, hashable
from busway.errors import BuswayError, NotRunning
from busway.net.clock import REAL_TIME
from busway.net.retry import Backoff
from busway.serde.errors import Undecodable
from busway.types import Record, RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from busway.consumer.consumer import Consumer

logger: logging.Logger = logging.getLogger("busway.app")

K = TypeVar("K")
V = TypeVar("V")
_NOTHING: Final[Mapping[str, int]] = {}
_POLL_MS: Final = 500
"""Maximum wait of a fetch; a record ends it at once."""
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 5.0
"""Backoff when the topic cannot be read: doubles from the first wait to the longest."""


class GlobalTable(Rows[K, V], Extension):
    """All rows of a topic by key, in every instance; made by `App.global_table`.

    Raises:
        BadDeclaration: the key type is not hashable.
    """

    def __init__(
        self, topic: Topic[K, V], *, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> None:
        super().__init__()
        hashable(topic)
        self.topic = topic
        self.passed_over: int = 0
        """Records that could not be decoded; each was logged with its position."""
        self._wanted = NewTopic(topic.name, partitions or -1, configs={**COMPACT, **(configs or {})})
        self._positions: dict[TopicPartition, int] = {}
        self._moved = asyncio.Condition()
        self._turn = asyncio.Lock()
        self._begun = self._answered = 0
        self._ends: dict[TopicPartition, int] | None = None
        self._consumer: Consumer | None = None
        self._following: asyncio.Task[None] | None = None

    async def put(self, key: K, value: V) -> RecordMetadata:
        """Write a row and wait for its acknowledgement.

        It is in memory once it is read: see `caught_up`.

        Raises:
            Unencodable: the key or the value is of another type.
            NotRunning: the app is not running.
            DeliveryFailed, BrokerError: it was not acknowledged.
        """
        if value is None:
            raise TypeError(f"table {self.topic.name}: None is no value; use delete({key!r})")
        return await self.topic.send(value, key)

    async def delete(self, key: K) -> RecordMetadata:
        """Delete a row with a tombstone; otherwise as `put`.

        Rows of one key may be in several partitions, after partitions were added or with several producers: each gets a
        tombstone. Returns the metadata of that in the key's own partition.
        """
        held = self._partitions_of(key)
        sent = await self.topic.send(None, key)
        for partition in held - {sent.partition}:
            await self.topic.send(None, key, partition=partition)
        return sent

    async def caught_up(self) -> None:
        """Wait until everything now in the topic is in memory, also while the topic cannot be read.

        Cheap enough for each record: concurrent callers share the next answer of the brokers.

        Raises:
            NotRunning: the app is not running, or stops meanwhile.
        """
        while (ends := await self._ends_now()) is None:
            async with self._moved:
                await self._moved.wait()
        async with self._moved:
            await self._moved.wait_for(lambda: not self._runs() or self._has(ends))
        if not self._runs():
            raise self._not_running()

    async def _ends_now(self) -> dict[TopicPartition, int] | None:
        """Return end offsets of a request sent after this call."""
        request = self._begun + 1
        async with self._turn:
            if self._answered < request:
                self._begun = asked = self._begun + 1
                self._ends = await self._ask()
                self._answered = asked
            return self._ends

    async def _ask(self) -> dict[TopicPartition, int] | None:
        if not self._runs():
            raise self._not_running()
        if self._consumer is not None:
            with contextlib.suppress(BuswayError):
                return await self._consumer.end_offsets(self._consumer.assignment())
        return None

    def _has(self, ends: Mapping[TopicPartition, int]) -> bool:
        return all(self._positions.get(partition, 0) >= end for partition, end in ends.items())

    def _runs(self) -> bool:
        return self._following is not None and not self._following.done()

    def _not_running(self) -> NotRunning:
        return NotRunning(f"table {self.topic.name}: app {self.topic.app.name} is not running")

    # Extension

    async def starting(self, app: RunningService) -> None:
        from busway.admin.missing import create_missing

        self._moved, self._turn = (
            asyncio.Condition(),
            asyncio.Lock(),
        )  # bound to this event loop, which may differ from the last start
        await create_missing(app, [self._wanted])
        loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._following = asyncio.ensure_future(self._follow(app, loaded))
        await asyncio.wait([self._following, loaded], return_when=asyncio.FIRST_COMPLETED)
        if self._following.done():
            await self._following

    async def stopped(self, app: RunningService) -> None:
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.wait([following])
        self._positions.clear()
        self._forget()
        async with self._moved:
            self._moved.notify_all()

    async def _follow(self, app: RunningService, loaded: "asyncio.Future[None]") -> None:
        backoff = Backoff(initial=_FIRST_WAIT_S, limit=_LONGEST_WAIT_S)
        while True:
            try:
                async with self._reading(app) as consumer:
                    ends = await consumer.end_offsets(consumer.assignment())
                    while True:
                        # Also before the first read: an empty topic counts as read at once.
                        await self._note_positions(consumer)
                        if not loaded.done() and self._has(ends):
                            logger.info("table %s: %d rows", self.topic.name, len(self))
                            loaded.set_result(None)
                        await self._read(app, consumer)
                        backoff.reset()
            except BuswayError as problem:
                if not loaded.done():
                    raise
                wait_s = backoff.next()
                logger.warning("table %s is not followed for %.1f s: %s", self.topic.name, wait_s, problem)
            await REAL_TIME.sleep(wait_s)

    @contextlib.asynccontextmanager
    async def _reading(self, app: RunningService) -> "AsyncIterator[Consumer]":
        from busway.consumer.consumer import Consumer

        consumer = Consumer(
            self.topic.name,
            bootstrap_servers=app.bootstrap_servers,
            client_id=app.name,
            security=app.security,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        async with consumer:
            for partition in consumer.assignment() & self._positions.keys():
                consumer.seek(partition, self._positions[partition])
            self._consumer = consumer
            try:
                yield consumer
            finally:
                self._consumer = None

    async def _read(self, app: RunningService, consumer: "Consumer") -> None:
        fetched = await consumer.getmany(timeout_ms=_POLL_MS)
        for records in fetched.values():
            for record in records:
                await self._apply(app, record)

    async def _note_positions(self, consumer: "Consumer") -> None:
        async with self._moved:
            for partition in consumer.assignment():
                # The position also passes offsets without a record, and markers.
                self._positions[partition] = await consumer.position(partition)
            self._moved.notify_all()

    async def _apply(self, app: RunningService, record: Record) -> None:
        try:
            typed: Any = await app.serdes.decode(record)
            if typed.key is None:
                raise Undecodable("it has no key")
        except Undecodable as problem:
            self.passed_over += 1
            where = f"{record.topic}-{record.partition} offset {record.offset}"
            logger.error("%s is no row of the table and is passed over: %s", where, problem)
            return
        self._set_row(
            typed.key,
            typed.value,
            RowOrigin(partition=record.partition, included=_NOTHING, written_ms=record.timestamp_ms),
        )
