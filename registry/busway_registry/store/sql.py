"""The store on a database: SQLite in WAL mode beside the broker, PostgreSQL in production.

What lives here: connections, transactions, rows. What does not: any rule of the registry (`service`).
Writing transactions take turns (`BEGIN IMMEDIATE`, an advisory lock), so ids and versions need no retries.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any, Final

from sqlalchemy import delete, event, func, insert, select, text, update
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from busway_registry.domain.schemas import Artifact, Json, Reference
from busway_registry.store.interface import IdTaken, Setting, StoredSchema, StoreFailed, Transaction, Version
from busway_registry.store.tables import METADATA, REFERENCES, SCHEMAS, SETTINGS, VERSIONS

_WRITER_LOCK: Final = 0x62757377  # any constant of ours, for pg_advisory_xact_lock
_CONTEXT: Final = "."


class SqlStore:
    """A store on a database.

    Args:
        url: SQLAlchemy's URL with an asyncio driver, such as `sqlite+aiosqlite:///registry.db` or `postgresql+psycopg://…`.
    """

    def __init__(self, url: str) -> None:
        self._engine: AsyncEngine = create_async_engine(url)
        self._sqlite = self._engine.dialect.name == "sqlite"
        self._turn = asyncio.Lock()
        if self._sqlite:
            event.listen(self._engine.sync_engine, "connect", _set_up_sqlite)
            event.listen(self._engine.sync_engine, "begin", _begin_sqlite)

    async def open(self) -> None:
        """Connect and create the tables that are missing.

        Raises:
            StoreFailed: the database cannot be used.
        """
        if self._sqlite:
            _try_file(self._engine.url.database)
        async with self._writing() as connection:
            await connection.run_sync(METADATA.create_all)

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Transaction]:
        """A consistent view."""
        with _failures():
            async with self._engine.connect() as connection:
                if not self._sqlite:
                    await connection.execution_options(isolation_level="REPEATABLE READ")
                async with connection.begin():
                    yield _SqlTransaction(connection)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[Transaction]:
        """A transaction that no other writer overlaps; committed when the block ends without an exception."""
        async with self._writing() as connection:
            yield _SqlTransaction(connection)

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[AsyncConnection]:
        # SQLite's own queue for writers is neither fair nor patient, so those of this process form one before it.
        with _failures():
            async with self._turn if self._sqlite else nullcontext(), self._engine.connect() as connection:
                await connection.execution_options(busway_writes=True)
                async with connection.begin():
                    if not self._sqlite:
                        await connection.execute(text(f"SELECT pg_advisory_xact_lock({_WRITER_LOCK})"))
                    yield connection


@contextmanager
def _failures() -> Iterator[None]:
    """SQLAlchemy's exceptions end here; the driver's words are shorter and hold no statement."""
    try:
        yield
    except SQLAlchemyError as problem:
        raise StoreFailed(str(getattr(problem, "orig", None) or problem)) from problem


def _try_file(file: str | None) -> None:
    """Open the file once by hand: the asyncio driver leaves a thread behind when it cannot."""
    try:
        sqlite3.connect(file or ":memory:").close()
    except sqlite3.Error as problem:
        raise StoreFailed(str(problem)) from None


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver opens no transactions of its own
    cursor = connection.cursor()
    cursor.execute("PRAGMA busy_timeout = 10000")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")  # an id that was given out is never given again
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("busway_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


class _SqlTransaction:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def schema(self, schema_id: int) -> StoredSchema | None:
        found = await self._connection.execute(select(SCHEMAS).where(SCHEMAS.c.id == schema_id))
        row = found.one_or_none()
        return _schema(row) if row is not None else None

    async def find_schema(self, fingerprint: str) -> StoredSchema | None:
        found = await self._connection.execute(
            select(SCHEMAS).where(SCHEMAS.c.context == _CONTEXT, SCHEMAS.c.fingerprint == fingerprint)
        )
        row = found.one_or_none()
        return _schema(row) if row is not None else None

    async def schemas_with_guid(self, guid: str) -> list[StoredSchema]:
        found = await self._connection.execute(select(SCHEMAS).where(SCHEMAS.c.guid == guid).order_by(SCHEMAS.c.id))
        return [_schema(row) for row in found]

    async def highest_id(self) -> int:
        found = await self._connection.execute(select(func.max(SCHEMAS.c.id)))
        return found.scalar_one() or 0

    async def add_schema(self, artifact: Artifact, schema_id: int | None = None) -> StoredSchema:
        values: dict[str, Any] = {
            "context": _CONTEXT,
            "fingerprint": artifact.fingerprint,
            "guid": str(artifact.guid),
            "schema_type": artifact.schema_type,
            "text": artifact.text,
            "references": [
                {"name": one.name, "subject": one.subject, "version": one.version} for one in artifact.references
            ],
            "metadata": artifact.metadata,
            "rule_set": artifact.rule_set,
        }
        if schema_id is not None:
            values["id"] = schema_id
        try:
            done = await self._connection.execute(insert(SCHEMAS).values(values))
        except IntegrityError:
            if schema_id is None:
                raise
            raise IdTaken(str(schema_id)) from None
        assert done.inserted_primary_key is not None
        new_id = int(done.inserted_primary_key[0])
        if schema_id is not None and self._connection.dialect.name == "postgresql":
            await self._connection.execute(
                text(
                    "SELECT setval(name, GREATEST((SELECT max(id) FROM schemas), pg_sequence_last_value(name::regclass))) "
                    "FROM pg_get_serial_sequence('schemas', 'id') AS name"
                )
            )
        if artifact.references:
            rows = [
                {"schema_id": new_id, "name": one.name, "subject": one.subject, "version": one.version}
                for one in dict.fromkeys(artifact.references)
            ]
            await self._connection.execute(insert(REFERENCES), rows)
        return StoredSchema(id=new_id, artifact=artifact)

    async def remove_schema(self, schema_id: int) -> None:
        await self._connection.execute(delete(SCHEMAS).where(SCHEMAS.c.id == schema_id))

    async def versions(self, subject: str | None = None) -> list[Version]:
        query = select(VERSIONS).order_by(VERSIONS.c.subject, VERSIONS.c.version)
        if subject is not None:
            query = query.where(VERSIONS.c.subject == subject)
        return sorted(map(_version, await self._connection.execute(query)), key=lambda one: (one.subject, one.version))

    async def versions_of_schema(self, schema_id: int) -> list[Version]:
        query = select(VERSIONS).where(VERSIONS.c.schema_id == schema_id)
        return sorted(map(_version, await self._connection.execute(query)), key=lambda one: (one.subject, one.version))

    async def add_version(self, version: Version) -> None:
        await self._connection.execute(
            insert(VERSIONS).values(
                subject=version.subject,
                version=version.version,
                schema_id=version.schema_id,
                deleted=version.deleted,
                timestamp_ms=version.timestamp_ms,
            )
        )

    async def mark_deleted(self, subject: str, version: int) -> None:
        await self._connection.execute(
            update(VERSIONS).where(VERSIONS.c.subject == subject, VERSIONS.c.version == version).values(deleted=True)
        )

    async def remove_version(self, subject: str, version: int) -> None:
        await self._connection.execute(
            delete(VERSIONS).where(VERSIONS.c.subject == subject, VERSIONS.c.version == version)
        )

    async def referenced_by(self, subject: str, version: int) -> list[int]:
        found = await self._connection.execute(
            select(REFERENCES.c.schema_id)
            .where(REFERENCES.c.subject == subject, REFERENCES.c.version == version)
            .distinct()
            .order_by(REFERENCES.c.schema_id)
        )
        return list(found.scalars())

    async def setting(self, kind: Setting, subject: str) -> Json | None:
        found = await self._connection.execute(
            select(SETTINGS.c.value).where(SETTINGS.c.kind == kind, SETTINGS.c.subject == subject)
        )
        value: Json | None = found.scalar_one_or_none()
        return value

    async def put_setting(self, kind: Setting, subject: str, value: Json) -> None:
        await self.remove_setting(kind, subject)
        await self._connection.execute(insert(SETTINGS).values(kind=kind, subject=subject, value=dict(value)))

    async def remove_setting(self, kind: Setting, subject: str) -> None:
        await self._connection.execute(delete(SETTINGS).where(SETTINGS.c.kind == kind, SETTINGS.c.subject == subject))


def _schema(row: Row[Any]) -> StoredSchema:
    found = row._mapping
    return StoredSchema(
        id=found["id"],
        artifact=Artifact(
            text=found["text"],
            schema_type=found["schema_type"],
            references=tuple(Reference(**one) for one in found["references"]),
            metadata=found["metadata"],
            rule_set=found["rule_set"],
        ),
    )


def _version(row: Row[Any]) -> Version:
    return Version(
        subject=row.subject,
        version=row.version,
        schema_id=row.schema_id,
        deleted=row.deleted,
        timestamp_ms=row.timestamp_ms,
    )
