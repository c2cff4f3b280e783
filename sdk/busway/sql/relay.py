"""Publishing the outbox.

Here: `Relay`: leadership, rounds, waking.
Not here: the table's contents (`outbox`), backoff (`relay_backoff`).

One relay of a database leads: the holder of PostgreSQL's advisory lock. The lock's connection also reads and deletes,
so a relay that lost the lock can do neither. SQLite has no such lock: run one relay there. Lock and LISTEN belong to a
session: behind PgBouncer the relay's engine needs session pooling or the database's own port; senders may use
transaction pooling.

A round reads the first rows, publishes them, and deletes the acknowledged ones. It has no cursor, so the next round
includes rows with early positions that commit late. Rows of one key are published one by one, different keys
concurrently.

At least once: rows acknowledged but not deleted before a relay ends are published again, with the same header
`busway_outbox-id`. A consumer keeps the ids, or is idempotent by key.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, and_, delete, event, not_, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from busway.errors import BuswayError
from busway.net.clock import APP_TIME
from busway.net.machine import current_machine
from busway.producer.producer import Producer
from busway.sql.headers import unpack_headers
from busway.sql.outages import WAITS, words
from busway.sql.relay_backoff import Holds
from busway.sql.tables import Tables
from busway.types import Addresses

logger: logging.Logger = logging.getLogger("busway.sql")
OUTBOX_ID: Final = "busway_outbox-id"
"""The header with the record's id, equal in all copies."""
MARK: Final = "busway_outbox"
"""Marks a connection that has written to the outbox."""
ROUND_ROWS: Final = 500
"""Rows of a round; bounds memory and what a crash repeats."""
DRAIN_S: Final = 10.0
"""Limit on waiting for the current round at stop."""
METADATA_TIMEOUT_MS: Final = 5_000
"""Limit on a round's wait for a missing topic."""


def channel(tables: Tables) -> str:
    return str(tables.outbox.fullname)


class Relay:
    """Publishes the outbox while its block runs; arguments as for `Outbox`."""

    def __init__(
        self,
        engine: AsyncEngine,
        tables: Tables,
        *,
        bootstrap_servers: Addresses,
        client_id: str,
        producer: dict[str, Any],
        keep: bool,
        poll_interval_s: float,
    ) -> None:
        self._postgresql = engine.dialect.name == "postgresql"
        self._engine = engine
        self._table = tables.outbox
        self._channel = channel(tables)
        self._listens = self._postgresql and engine.dialect.driver == "psycopg"
        self._keep = keep
        self._poll_interval_s = poll_interval_s
        self._bootstrap_servers = bootstrap_servers
        self._options = {"linger_ms": 0, "metadata_timeout_ms": METADATA_TIMEOUT_MS, **producer, "client_id": client_id}
        self._woken = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.published: int = 0
        self.worked: asyncio.Event = asyncio.Event()
        """Set after each round; the waiter clears it."""
        self.leading: asyncio.Event = asyncio.Event()

    async def __aenter__(self) -> "Relay":
        self._loop = asyncio.get_running_loop()
        self._machine = current_machine()
        self._holds = Holds(self._machine.chance.random)
        self._looked_s = self._machine.monotonic_s()
        event.listen(self._engine.sync_engine, "checkin", self._returned)
        self._task = asyncio.create_task(self._run(), name="busway-outbox-relay")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        self._woken.set()
        assert self._task is not None
        try:
            await APP_TIME.wait([self._task], timeout=DRAIN_S)
        finally:
            event.remove(self._engine.sync_engine, "checkin", self._returned)
            self._task.cancel()
            await asyncio.wait([self._task])

    def look(self) -> None:
        self._woken.set()

    def _returned(self, _connection: Any, record: Any) -> None:
        """Wake when a marked connection, now committed or rolled back, returns."""
        if record.info.pop(MARK, None) and self._loop is not None:
            self._loop.call_soon_threadsafe(self._woken.set)

    async def _run(self) -> None:
        attempt = 0
        while not self._stopping:
            try:
                async with self._leader() as connection, self._producing() as producer:
                    self.leading.set()
                    attempt = 0
                    while not self._stopping:
                        self._woken.clear()
                        more = await self._round(connection, producer)
                        self.worked.set()
                        if not more:
                            await self._rest(connection)
            except Exception as problem:  # noqa: BLE001 - the relay's top loop: the rows are safe and retried
                attempt += 1
                wait_s = WAITS.wait_s(attempt, self._machine.chance.random())
                logger.warning("the outbox waits %.1f s: %s", wait_s, words(problem))
                await self._sleep(wait_s)
            finally:
                self.leading.clear()

    @contextlib.asynccontextmanager
    async def _producing(self) -> AsyncIterator[Producer]:
        producer = Producer(self._bootstrap_servers, **self._options)
        await producer.start()
        try:
            yield producer
        finally:
            await producer.stop(0)

    @contextlib.asynccontextmanager
    async def _leader(self) -> AsyncIterator[AsyncConnection]:
        """Wait for leadership; yield the connection, which is in AUTOCOMMIT."""
        async with self._engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            try:
                if self._postgresql:
                    lock = text("SELECT pg_try_advisory_lock(hashtext(:name))")
                    # A blocking lock's statement would hold back vacuum.
                    while not await connection.scalar(lock, {"name": self._channel}):
                        await self._sleep(self._poll_interval_s)
                        if self._stopping:
                            break
                if self._listens:
                    quoted = self._engine.dialect.identifier_preparer.quote_identifier(self._channel)
                    await connection.execute(text(f"LISTEN {quoted}"))
                yield connection
            finally:
                if self._postgresql:
                    await connection.invalidate()  # also ends the lock and LISTEN

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with APP_TIME.timeout(seconds):
                while not self._stopping:
                    await self._woken.wait()
                    self._woken.clear()

    async def _rest(self, connection: AsyncConnection) -> None:
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._woken.wait())]
        if self._listens:
            waits.append(asyncio.ensure_future(_notified(connection)))
        due_s = self._holds.next_s(self._looked_s) - self._machine.monotonic_s()
        timeout_s = min(self._poll_interval_s, max(due_s, 0.0))
        try:
            await APP_TIME.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            outcomes = await asyncio.gather(*waits, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    # Rounds

    async def _round(self, connection: AsyncConnection, producer: Producer) -> bool:
        rows = (await connection.execute(self._first())).all()
        chains: dict[Any, list[Row[Any]]] = defaultdict(list)
        for row in rows:
            chains[(row.aggregatetype, row.aggregateid) if row.aggregateid is not None else row.position].append(row)
        published = await asyncio.gather(*(self._publish(producer, chain) for chain in chains.values()))
        done = [position for positions in published for position in positions]
        if done:
            acknowledged = self._table.c.position.in_(done)
            now_ms = self._machine.wall_ms()
            await connection.execute(
                update(self._table).where(acknowledged).values(published_ms=now_ms)
                if self._keep
                else delete(self._table).where(acknowledged)
            )
            self.published += len(done)
        return bool(rows)

    def _first(self) -> Select[Any]:
        columns = self._table.c
        self._looked_s = self._machine.monotonic_s()
        held = self._holds.now(self._looked_s)
        conditions: list[ColumnElement[bool]] = [columns.published_ms.is_(None)]
        if held.topics:
            conditions.append(columns.aggregatetype.not_in(sorted(held.topics)))
        if held.positions:
            conditions.append(columns.position.not_in(sorted(held.positions)))
        if held.keys:
            held_keys = (and_(columns.aggregatetype == topic, columns.aggregateid == key) for topic, key in held.keys)
            conditions.append(or_(columns.aggregateid.is_(None), not_(or_(*held_keys))))
        return select(self._table).where(*conditions).order_by(columns.position).limit(ROUND_ROWS)

    async def _publish(self, producer: Producer, chain: Sequence[Row[Any]]) -> list[int]:
        done = []
        for row in chain:
            try:
                await producer.send_and_wait(
                    row.aggregatetype,
                    row.payload,
                    row.aggregateid,
                    partition=row.partition,
                    timestamp_ms=row.timestamp_ms,
                    headers=[(OUTBOX_ID, str(row.id).encode()), *unpack_headers(row.headers)],
                )
            except (BuswayError, ValueError) as problem:
                wait_s = self._holds.failed(
                    row.aggregatetype, row.aggregateid, row.position, problem, self._machine.monotonic_s()
                )
                logger.error(
                    "outbox: %s (id %s) cannot be published, again in %.1f s: %s",
                    row.aggregatetype,
                    row.id,
                    wait_s,
                    problem,
                )
                break
            self._holds.succeeded(row.aggregatetype, row.aggregateid, row.position)
            done.append(row.position)
        return done


async def _notified(connection: AsyncConnection) -> None:
    """Wait for a NOTIFY; earlier unread ones count."""
    driver: Any = (await connection.get_raw_connection()).driver_connection
    async with contextlib.aclosing(driver.notifies(stop_after=1)) as notifications:
        async for _ in notifications:
            pass
