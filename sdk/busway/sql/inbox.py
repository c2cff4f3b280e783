"""The inbox: records are handled once, in the transaction of the handler's writes.

Here: `Sql`.
Not here: the tables (`tables`), sending (`outbox`), retries of database calls (`outages`).

A handler's transaction first inserts the row (group, topic, partition, offset); a conflict means a duplicate. So a
record is handled once even if its offset was never committed or two instances have it: the second waits on the primary
key until the first commits (a duplicate) or rolls back (then it handles the record). SQLite's single writer has
the same effect.

Rows may be inserted in any order, as handlers run concurrently and keys wait for retries. After the group's commit one
transaction raises the partition's floor and deletes the rows below; records below it are duplicates, too. The floor is
read after the insert, so a late instance cannot pass. The worker's limit on unfinished records, times the partitions,
bounds the inbox.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

from sqlalchemy import ColumnElement, Table, and_, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from busway.app.extending.extension import Call, Extension
from busway.app.model.topic import BadDeclaration, ConsumerRecord
from busway.net.clock import APP_TIME
from busway.sql.outages import DatabaseUnreachable, is_outage, through_outages, words
from busway.sql.tables import TABLES, Tables, check_dialect, create_all
from busway.sql.topics import TopicState, look_at
from busway.types import TopicPartition

if TYPE_CHECKING:
    from busway.app.model.topic import Route
    from busway.app.service import RunningService

logger: logging.Logger = logging.getLogger("busway.sql")
PRUNE_TIMEOUT_S: Final = 10.0
"""Limit of pruning; the rest waits for the next commit."""


@dataclass(slots=True)
class _Seen:
    first: int
    highest: int = -1
    floored: bool = False
    logged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A partition's floor, topic id, and highest inbox offset (-1 for none)."""

    floor: int
    topic_id: UUID | None
    highest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settled:
    """The first offset not handled, None if unknown; whether rows were deleted."""

    position: int | None
    changed: bool


class Sql(Extension):
    """Runs handlers in a database transaction together with their records' position.

    Give it to a handler: `@app.subscribe(payments, sql=Sql(engine))`; the handler's parameter `tx` is the transaction's
    connection.

    On PostgreSQL the transaction is READ COMMITTED, whatever the engine's setting: the inbox must see what others have
    just committed. Take row locks (`SELECT … FOR UPDATE`) where that is too weak.

    The transaction stays open while the handler runs, which counts against `idle_in_transaction_session_timeout`. A
    server that ends it looks like an outage, and the record is retried without limit; with a shorter
    `subscribe(timeout_s=…)` it fails as other slow records do. Any pool mode of PgBouncer works; for transaction
    pooling before PgBouncer 1.21 give psycopg `connect_args={"prepare_threshold": None}`.

    Args:
        engine: of the database that handlers write to; SQLite (best in WAL mode) or PostgreSQL.
        resume: "group" resumes from the group's committed offsets; the database only detects duplicates. "database"
            resumes from the first record that the database lacks, whatever the group's offsets: output and position
            agree even after offsets were lost or reset, or the database was restored from a backup. To handle records
            again on purpose, call `forget` while the service is stopped.
        name: separates handlers of one group that read the same topic; each needs a `Sql` with a different name.
        create_tables: create missing tables at start; False for services with migrations.
        tables: names of the tables.

    Raises:
        BadDeclaration: the database is neither SQLite nor PostgreSQL.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        resume: Literal["group", "database"] = "group",
        name: str = "",
        create_tables: bool = True,
        tables: Tables = TABLES,
    ) -> None:
        check_dialect(engine, "Sql")
        if resume not in {"group", "database"}:
            raise BadDeclaration(f"Sql: resume is 'group' or 'database', not {resume!r}")
        self._postgresql = engine.dialect.name == "postgresql"
        self._engine = engine.execution_options(isolation_level="READ COMMITTED") if self._postgresql else engine
        self._insert: Any = postgresql_insert if self._postgresql else sqlite_insert
        self._resume = resume
        self._name = name
        self._create_tables = create_tables
        self._tables = tables
        self._app: RunningService | None = None
        self._seen: dict[TopicPartition, _Seen] = {}
        self._topics: dict[TopicPartition, TopicState] = {}
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def _turn(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """Serialise writers to SQLite, whose lock waits are unfair and time out.

        Each event loop has a lock, as an app may run in one loop after another.
        """
        if self._postgresql:
            return nullcontext()
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._lock, self._loop = asyncio.Lock(), loop
        return self._lock

    async def create_tables(self) -> None:
        """As `create_all`."""
        await create_all(self._engine, self._tables)

    async def forget(self, group: str, topic: str | None = None) -> None:
        """Make a group handle its records again, of all topics or one. Only while its service is stopped."""
        async with self._turn(), self._engine.begin() as connection:
            for table in (self._tables.inbox, self._tables.floors):
                wanted = table.c.group_id == self._reader(group)
                if topic is not None:
                    wanted &= table.c.topic == topic
                await connection.execute(delete(table).where(wanted))

    @contextlib.asynccontextmanager
    async def handling(self, group: str, record: ConsumerRecord[Any, Any]) -> AsyncIterator[AsyncConnection | None]:
        """Open a transaction for an attempt at a record; yield its connection, or None for a duplicate.

        Commits at the block's end and rolls back if the block raises. On entry an unreachable database is retried
        without limit. An ORM session joins with `AsyncSession(bind=tx)`; its `commit` then only flushes.

        Raises:
            DatabaseUnreachable: it went away during the block. With `subscribe(sql=…)` the handler is called again
                without using up an attempt.
            SQLAlchemyError: other errors of the database, such as a violated constraint.
        """
        partition = TopicPartition(record.topic, record.partition)
        seen = self._seen.setdefault(partition, _Seen(first=record.offset))
        seen.first = min(seen.first, record.offset)
        came_again = record.offset <= seen.highest
        seen.highest = max(seen.highest, record.offset)
        reader = self._reader(group)
        while True:
            async with self._turn():
                connection, end = await through_outages(
                    partial(self._claim, reader, partition, record.offset, seen),
                    f"{record.topic}-{record.partition} at offset {record.offset}",
                )
                if connection is not None:
                    with _translated():
                        async with end:
                            try:
                                yield connection
                            except Exception as problem:
                                if connection.invalidated:  # whatever exception the handler raised
                                    raise DatabaseUnreachable(f"the database went away: {problem!r}") from problem
                                raise
                    return
            if came_again and await self._recreated(reader, partition):
                came_again = seen.floored = False
                continue
            if not seen.logged:
                seen.logged = True
                logger.info("%s-%d: records from offset %d on were handled before, skipped", *partition, record.offset)
            yield None
            return

    def _reader(self, group: str) -> str:
        return f"{group}/{self._name}" if self._name else group

    async def _claim(
        self, reader: str, partition: TopicPartition, offset: int, seen: _Seen
    ) -> tuple[AsyncConnection | None, AsyncExitStack]:
        row = {"group_id": reader, "topic": partition.topic, "partition": partition.partition}
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(self._engine.connect())
            if not seen.floored:
                # In a transaction of its own: concurrent handlers must not wait for the first one.
                known = self._topics.get(partition)
                first = {**row, "floor": 0, "started": seen.first, "topic_id": known.topic_id if known else None}
                async with connection.begin():
                    await connection.execute(self._insert(self._tables.floors).values(first).on_conflict_do_nothing())
                seen.floored = True
            transaction = await stack.enter_async_context(connection.begin())
            inbox = self._tables.inbox
            claim = self._insert(inbox).values({**row, "offset": offset}).on_conflict_do_nothing()
            if await connection.scalar(claim.returning(inbox.c.offset)) is not None:
                floors = self._tables.floors
                floor = await connection.scalar(select(floors.c.floor).where(_of(floors, reader, partition)))
                if floor is None or offset >= floor:
                    return connection, stack.pop_all()
            await transaction.rollback()
        return None, stack

    def around(self, route: "Route", call: Call) -> Call:
        """Call the handler again when the database went away; an outage uses up no attempt."""

        if route.sql is not self:
            return call

        async def outlasting(record: ConsumerRecord[Any, Any]) -> Any:
            return await through_outages(
                lambda: call(record), route.name, lambda problem: isinstance(problem, DatabaseUnreachable)
            )

        return outlasting

    # Lifecycle of the app

    async def starting(self, app: "RunningService") -> None:
        """Create tables; `BadDeclaration` if it belongs to another app or two handlers share a topic."""
        if self._app not in {None, app}:
            raise BadDeclaration(f"app {app.name}: this Sql belongs to another app; give each app one of its own")
        handlers: dict[str, Any] = {}
        for route in app.routes:
            for topic in route.topics if route.sql is self else ():
                if (other := handlers.setdefault(topic.name, route)) is not route:
                    raise BadDeclaration(
                        f"app {app.name}: {other.name} and {route.name} read {topic.name} with the same Sql and would take "
                        "each other's records for handled; give one of them Sql(engine, name='…')"
                    )
        self._app = app
        if self._create_tables:
            await through_outages(self.create_tables, f"app {app.name}")

    async def stopped(self, app: "RunningService") -> None:
        self._seen.clear()
        self._topics.clear()

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        for partition in partitions:
            self._seen.pop(partition, None)
        assert self._app is not None
        settled = await self._settle(self._reader(self._app.group_id), partitions)
        if self._resume == "group":
            return {}
        return {partition: state.position for partition, state in settled.items() if state.position is not None}

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._seen.pop(partition, None)
            self._topics.pop(partition, None)

    async def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Raise the floors and delete the rows below; failures are left to the next commit."""
        assert self._app is not None
        reader = self._reader(self._app.group_id)
        own_offsets = {partition: offset for partition, offset in offsets.items() if partition in self._seen}
        if not own_offsets:
            return
        try:
            async with APP_TIME.timeout(PRUNE_TIMEOUT_S), self._turn(), self._engine.begin() as connection:
                for partition, offset in sorted(own_offsets.items()):
                    floors, inbox = self._tables.floors, self._tables.inbox
                    lower = and_(_of(floors, reader, partition), floors.c.floor < offset)
                    await connection.execute(update(floors).where(lower).values(floor=offset))
                    await connection.execute(
                        delete(inbox).where(_of(inbox, reader, partition), inbox.c.offset < offset)
                    )
        except (SQLAlchemyError, OSError, TimeoutError) as problem:
            logger.warning("the inbox was not pruned, the next commit does it: %s", words(problem))

    # Recreated topics

    async def _settle(self, reader: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, _Settled]:
        """Bring the partitions' rows in line with the existing topics.

        A different topic id deletes everything. A topic that ends below the handled offsets lost its tail, as after an
        unclean election: other records will get those offsets. Rows are read before the topics, so what another
        instance handles meanwhile stays.
        """
        assert self._app is not None

        async def read() -> dict[TopicPartition, _Known]:
            async with self._engine.connect() as connection:
                return {
                    partition: state
                    for partition in partitions
                    if (state := await self._known(connection, reader, partition))
                }

        known = await through_outages(read, "the assignment of partitions")
        topics = await look_at(self._app.bootstrap_servers, partitions, self._app.security)
        self._topics |= topics
        settled = {}
        for partition, rows in known.items():
            if (topic := topics.get(partition)) is not None:
                where = f"{partition.topic}-{partition.partition}"
                settled[partition] = await through_outages(partial(self._mend, reader, partition, rows, topic), where)
        return settled

    async def _known(self, connection: AsyncConnection, reader: str, partition: TopicPartition) -> _Known | None:
        floors, inbox = self._tables.floors, self._tables.inbox
        row = (await connection.execute(select(floors).where(_of(floors, reader, partition)))).one_or_none()
        if row is None:
            return None
        highest = await connection.scalar(select(func.max(inbox.c.offset)).where(_of(inbox, reader, partition)))
        return _Known(floor=row.floor, topic_id=row.topic_id, highest=-1 if highest is None else highest)

    async def _mend(self, reader: str, partition: TopicPartition, known: _Known, topic: TopicState) -> _Settled:
        floors, inbox = self._tables.floors, self._tables.inbox
        floor, rows = _of(floors, reader, partition), _of(inbox, reader, partition)
        if topic.is_other_than(known.topic_id):
            logger.warning("%s was deleted and recreated: the state of partition %d is dropped", *partition)
            async with self._turn(), self._engine.begin() as connection:
                await connection.execute(delete(floors).where(floor, floors.c.topic_id == known.topic_id))
                await connection.execute(delete(inbox).where(rows, inbox.c.offset <= known.highest))
            return _Settled(position=None, changed=True)
        cut = topic.end < max(known.floor, known.highest + 1)
        if cut:
            logger.warning(
                "%s-%d ends at %d, below what was handled: its tail was lost; records written there since count as handled, "
                "`forget` and a restart handle all again",
                *partition,
                topic.end,
            )
            async with self._turn(), self._engine.begin() as connection:
                await connection.execute(
                    update(floors).where(floor, floors.c.floor > topic.end).values(floor=topic.end)
                )
                lost = inbox.c.offset.between(topic.end, known.highest)
                await connection.execute(delete(inbox).where(rows, lost))
        async with self._engine.connect() as connection:
            row = (await connection.execute(select(floors.c.floor, floors.c.started).where(floor))).one()
            position: int = min(max(row.floor, row.started), topic.end)
            above = select(inbox.c.offset).where(rows, inbox.c.offset >= position).order_by(inbox.c.offset)
            for offset in await connection.scalars(above):
                if offset != position:
                    break
                position += 1
        return _Settled(position=position, changed=cut)

    async def _recreated(self, reader: str, partition: TopicPartition) -> bool:
        """Return whether a partition that went back lost rows: its topic was recreated or lost its tail."""
        if self._app is None:
            return False
        settled = (await self._settle(reader, [partition])).get(partition)
        return settled is not None and settled.changed


def _of(table: Table, reader: str, partition: TopicPartition) -> ColumnElement[bool]:
    return and_(table.c.group_id == reader, table.c.topic == partition.topic, table.c.partition == partition.partition)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as problem:
        if is_outage(problem):
            raise DatabaseUnreachable(f"the database went away: {words(problem)}") from problem
        raise
