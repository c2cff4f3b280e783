"""The transactional outbox: records are sent if, and only if, a transaction commits.

Here: `Outbox`, which writes the records into a table.
Not here: publishing them (`relay`).

Debezium's outbox event router reads these columns, so a connector may replace the relay:

| column | holds | Debezium |
|---|---|---|
| id | UUID, also the header `busway_outbox-id` | header `id` |
| aggregatetype | the topic | `route.by.field`, with `route.topic.replacement=${routedByValue}` |
| aggregateid | the key's bytes; NULL without a key | `table.field.event.key`, with `key.converter` BinaryDataConverter
|
| type | name of the value's class | place it as a header with `table.fields.additional.placement=type:header` |
| payload | the value's bytes; NULL for a tombstone | `table.field.event.payload`, with `value.converter`
BinaryDataConverter |
| partition, timestamp_ms | as given, or NULL; when it was sent | `…additional.placement=partition:partition`,
`table.field.event.timestamp` |
| headers | a JSON array of [name, value in base64 or null] | not routed |
| position, published_ms | the order of sending; when it was published, where rows are kept | not routed |
"""

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack
from uuid import UUID

from sqlalchemy import Connection, Executable, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from busway.app.extending.extension import Extension
from busway.app.model.topic import BadDeclaration, Topic, TopicOwner, TopicSerdes
from busway.errors import NotRunning
from busway.net.clock import APP_TIME
from busway.net.machine import current_machine
from busway.sql.headers import pack_headers
from busway.sql.outages import through_outages
from busway.sql.relay import MARK, OUTBOX_ID, Relay, channel
from busway.sql.tables import TABLES, Tables, check_dialect, create_all
from busway.types import Headers, SendOptions

if TYPE_CHECKING:
    from busway.app.service import RunningService

K = TypeVar("K")
V = TypeVar("V")
_LONGEST_TYPE: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxStatus:
    """Unpublished rows of a topic."""

    topic: str
    waiting: int
    oldest_s: float


class Outbox(Extension):
    """Sends records in the transaction of the caller's writes.

    Extend an app with it (`app.extend(outbox)`) and the app's process publishes; of several instances one does. With
    `relay=False` the process only sends, and `busway outbox relay MODULE:APP` publishes.

    Args:
        engine: of the database whose transactions send.
        relay: publish while the app runs.
        keep: keep published rows, with the time; pruning them is up to you. By default they are deleted.
        poll_interval_s: interval of polling without a notification. Commits of the relay's process notify it; on
            PostgreSQL all commits do.
        notify: notify the relay by NOTIFY on PostgreSQL, which serialises commits briefly; False relies on polling.
        create_tables: create missing tables at start; False for services with migrations.
        tables: names of the tables.

    Raises:
        BadDeclaration: the database is neither SQLite nor PostgreSQL.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        relay: bool = True,
        keep: bool = False,
        poll_interval_s: float = 1.0,
        notify: bool = True,
        create_tables: bool = True,
        tables: Tables = TABLES,
    ) -> None:
        check_dialect(engine, "Outbox")
        self._engine = engine
        self._relays = relay
        self._keep = keep
        self._poll_interval_s = poll_interval_s
        self._notify = notify
        self._create_tables = create_tables
        self._tables = tables
        self._serdes: dict[TopicOwner, TopicSerdes] = {}
        self._stack: contextlib.AsyncExitStack | None = None
        self._relay: Relay | None = None

    async def create_tables(self) -> None:
        """As `create_all`."""
        await create_all(self._engine, self._tables)

    async def send(
        self,
        tx: AsyncConnection | AsyncSession,
        topic: Topic[K, V],
        value: V | None,
        key: K | None = None,
        **options: Unpack[SendOptions],
    ) -> UUID:
        """Write a record into the outbox in the caller's transaction. Needs no broker.

        Records of one key are published in the order of their inserts. To make that the order of commits, change or
        lock the row that the key stands for before sending.

        Args:
            tx: a connection or session with a transaction open.
            topic: declared with an app; the app need not run.
            value, key: typed; None as the value is a tombstone.
            options: headers, which follow `busway_outbox-id`; partition, by default chosen by the key; timestamp_ms, by default now.

        Returns:
            The id in the record's header `busway_outbox-id`.

        Raises:
            Unencodable: the value or the key is of another type.
            RegistryUnreachable, RegistryRefused: the schema of an Avro topic is not cached and cannot be fetched.
        """
        await self.prepare(topic)
        row = self._row(topic, value, key, **options)
        connection = await tx.connection() if isinstance(tx, AsyncSession) else tx
        await connection.execute(self._statement(connection.dialect.name, row))
        (await connection.get_raw_connection()).info[MARK] = True
        return UUID(str(row["id"]))

    def send_sync(
        self,
        tx: Connection | Session,
        topic: Topic[K, V],
        value: V | None,
        key: K | None = None,
        **options: Unpack[SendOptions],
    ) -> UUID:
        """As `send`, for code without an event loop; `prepare` the topic before, or run the app.

        Raises:
            Unencodable: the value or the key is of another type.
            NotRunning: the topic was not prepared.
        """
        row = self._row(topic, value, key, **options)
        connection = tx.connection() if isinstance(tx, Session) else tx
        connection.execute(self._statement(connection.dialect.name, row))
        return UUID(str(row["id"]))

    async def prepare(self, *topics: Topic[Any, Any]) -> None:
        """Cache schemas, so that sending makes no request; `send` does so on first use.

        Raises:
            RegistryUnreachable, RegistryRefused: a schema cannot be registered.
            BadDeclaration: an Avro topic of an app without a registry.
        """
        for topic in topics:
            if not self._serdes_of(topic).knows(topic):
                await self._serdes_of(topic).prepare([topic])

    async def status(self) -> list[OutboxStatus]:
        """Count unpublished rows by topic."""
        table = self._tables.outbox
        columns = (table.c.aggregatetype, func.count(), func.min(table.c.timestamp_ms))
        waiting = select(*columns).where(table.c.published_ms.is_(None)).group_by(table.c.aggregatetype)
        async with self._engine.connect() as connection:
            rows = (await connection.execute(waiting.order_by(table.c.aggregatetype))).all()
        now_ms = current_machine().wall_ms()
        return [
            OutboxStatus(topic=topic, waiting=count, oldest_s=max(now_ms - oldest_ms, 0) / 1000)
            for topic, count, oldest_ms in rows
        ]

    def relay(self, app: "RunningService") -> Relay:
        """Make a relay, an async context manager, with an app's brokers and producer options."""
        return Relay(
            self._engine,
            self._tables,
            bootstrap_servers=app.bootstrap_servers,
            client_id=f"{app.name}-outbox",
            producer={**app.producer_options, "security": app.security},
            keep=self._keep,
            poll_interval_s=self._poll_interval_s,
        )

    async def close(self) -> None:
        """Disconnect from schema registries."""
        while self._serdes:
            await self._serdes.popitem()[1].close()

    # Lifecycle of the app

    async def starting(self, app: "RunningService") -> None:
        if self._create_tables:
            await through_outages(self.create_tables, f"app {app.name}")
        if self._relays:
            self._stack = contextlib.AsyncExitStack()
            self._relay = await self._stack.enter_async_context(self.relay(app))

    async def stopped(self, app: "RunningService") -> None:
        """Finish the current round, so that no acknowledged row is published again."""
        stack, self._stack, self._relay = self._stack, None, None
        if stack is not None:
            await stack.aclose()
        await self.close()

    async def settle(self) -> bool:
        waited = False
        while (relay := self._relay) is not None:
            relay.worked.clear()
            if not await self.status():
                break
            waited = True
            relay.look()
            with contextlib.suppress(TimeoutError):  # another instance may publish
                async with APP_TIME.timeout(self._poll_interval_s):
                    await relay.worked.wait()
        return waited

    # Parts

    def _serdes_of(self, topic: Topic[Any, Any]) -> TopicSerdes:
        app = topic.app
        if app.is_running and app.serdes.knows(topic):
            return app.serdes
        if app not in self._serdes:
            self._serdes[app] = app.new_serdes()
        return self._serdes[app]

    def _row(
        self,
        topic: Topic[Any, Any],
        value: Any,
        key: Any,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> dict[str, Any]:
        serdes = self._serdes_of(topic)
        if not serdes.knows(topic):
            raise NotRunning(
                f"topic {topic.name} is not prepared; await outbox.prepare(…) first, or run app {topic.app.name}"
            )
        if any(name == OUTBOX_ID for name, _ in headers):
            raise BadDeclaration(f"the header {OUTBOX_ID} is the outbox's own")
        machine = current_machine()
        return {
            "id": machine.uuid4(),
            "aggregatetype": topic.name,
            "aggregateid": serdes.encode(topic, "key", key),
            "type": type(value).__name__[:_LONGEST_TYPE] if value is not None else "tombstone",
            "payload": serdes.encode(topic, "value", value),
            "headers": pack_headers(headers),
            "partition": partition,
            "timestamp_ms": timestamp_ms if timestamp_ms is not None else machine.wall_ms(),
        }

    def _statement(self, dialect: str, row: dict[str, Any]) -> Executable:
        statement = insert(self._tables.outbox).values(row)
        if dialect == "postgresql" and self._notify:
            # Saves a round trip; delivered on commit only, once for all records of the transaction.
            return statement.returning(func.pg_notify(channel(self._tables), ""))
        return statement
