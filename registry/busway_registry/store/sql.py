"""The store on a database: SQLite in WAL mode beside the broker, PostgreSQL in production.

Here: transactions and rows.
Not here: connections (`engines`), tables (`tables`, `revisions`), rules (`service`).

Writing transactions are serialised (`BEGIN IMMEDIATE`, an advisory lock), so ids and versions need no retries.
"""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Select, case, delete, exists, false, func, insert, select, text, update
from sqlalchemy.engine import Row
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from busway_registry.domain.schemas import Artifact, Json, Reference
from busway_registry.domain.subjects import MAX_ID
from busway_registry.store.engines import WRITES, create_engine, try_sqlite
from busway_registry.store.interface import (
    GLOBAL,
    WHOLE,
    Deleted,
    IdTaken,
    NoMoreIds,
    Part,
    Setting,
    StoredSchema,
    StoreFailed,
    Transaction,
    Version,
)
from busway_registry.store.revisions import migrate, prepare
from busway_registry.store.tables import CONTEXT, IDS, REFERENCES, SCHEMAS, SETTINGS, VERSIONS

_WRITER_LOCK: Final = 0x62757377  # an arbitrary key for pg_advisory_xact_lock
_FORBIDDEN: Final = "42501"  # PostgreSQL's insufficient_privilege
_ROWS: Final = 2_000
"""Rows of a list read at a time: 10 ms."""
_SURROGATES: Final = 0xD800
_AFTER_SURROGATES: Final = 0xE000
_ALIVE: Final = VERSIONS.c.deleted.is_(false())
Item = TypeVar("Item")
_migrating: Final = threading.Lock()
"""A lock of the process, not the loop: Alembic's `op` is global."""
_MIGRATING_LOOK_S: Final = 0.01


class SqlStore:
    """A store on a database.

    Args:
        url: SQLAlchemy's, with an asyncio driver: `sqlite+aiosqlite:///registry.db`, `postgresql+psycopg://…`.

    Raises:
        StoreFailed: invalid URL, or missing driver.
    """

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url)
        self._sqlite = self._engine.dialect.name == "sqlite"
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Connect; create tables in an empty database, or migrate those of an earlier release.

        Raises:
            StoreFailed: the database is unusable.
        """
        if self._sqlite:
            try_sqlite(self._engine.url)
        async with self._writing() as connection:
            if await connection.run_sync(prepare):
                async with _alone(_migrating):
                    await connection.run_sync(migrate)

    async def close(self) -> None:
        await self._engine.dispose()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Transaction]:
        with _failures():
            async with self._engine.connect() as connection:
                if not self._sqlite:
                    await connection.execution_options(isolation_level="REPEATABLE READ")
                async with connection.begin():
                    yield _SqlTransaction(connection)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[Transaction]:
        """Open an exclusive writing transaction; committed if the block succeeds."""
        async with self._writing() as connection:
            yield _SqlTransaction(connection)

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[AsyncConnection]:
        # SQLite's queue for writers is neither fair nor patient, and waiting in PostgreSQL would take a connection each: so writers of
        # this process queue here.
        with _failures():
            async with self._turn, self._engine.connect() as connection:
                await connection.execution_options(**{WRITES: True})
                async with connection.begin():
                    if not self._sqlite:
                        await connection.execute(text(f"SELECT pg_advisory_xact_lock({_WRITER_LOCK})"))
                    yield connection


@asynccontextmanager
async def _alone(lock: threading.Lock) -> AsyncIterator[None]:
    """Hold a lock of the process without blocking the event loop."""
    while not lock.acquire(blocking=False):  # noqa: ASYNC110 - what holds it may run in another event loop
        await asyncio.sleep(_MIGRATING_LOOK_S)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _failures() -> Iterator[None]:
    """Convert SQLAlchemy's exceptions to the driver's short messages without statements."""
    try:
        yield
    except SQLAlchemyError as problem:
        origin = getattr(problem, "orig", None)
        primary = getattr(getattr(origin, "diag", None), "message_primary", None)
        why = " ".join(str(primary or origin or problem).split())
        if isinstance(problem, OperationalError) and problem.statement is None:
            why += "; start it, or give another database, host, user or password in the URL"
        elif getattr(origin, "sqlstate", None) == _FORBIDDEN:
            why += (
                "; give its user the right, for instance as the owner of the database, or name another user in the URL"
            )
        raise StoreFailed(why) from problem


class _SqlTransaction:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def schema(self, schema_id: int) -> StoredSchema | None:
        rows = await self._connection.execute(select(SCHEMAS).where(SCHEMAS.c.id == schema_id))
        row = rows.one_or_none()
        return _schema(row) if row is not None else None

    async def find_schema(self, fingerprint: str) -> StoredSchema | None:
        rows = await self._connection.execute(
            select(SCHEMAS).where(SCHEMAS.c.context == CONTEXT, SCHEMAS.c.fingerprint == fingerprint)
        )
        row = rows.one_or_none()
        return _schema(row) if row is not None else None

    async def schemas_with_guid(self, guid: str) -> list[StoredSchema]:
        rows = await self._connection.execute(select(SCHEMAS).where(SCHEMAS.c.guid == guid).order_by(SCHEMAS.c.id))
        return [_schema(row) for row in rows]

    async def highest_id(self) -> int:
        highest = await self._connection.execute(select(func.max(SCHEMAS.c.id)))
        return highest.scalar_one() or 0

    async def add_schema(self, artifact: Artifact, schema_id: int | None = None) -> StoredSchema:
        new_id = await self._take_id(schema_id)
        values = {
            "id": new_id,
            "context": CONTEXT,
            "fingerprint": artifact.fingerprint,
            "guid": str(artifact.guid),
            "schema_type": artifact.schema_type,
            "text": artifact.text,
            "references": [
                {"name": reference.name, "subject": reference.subject, "version": reference.version}
                for reference in artifact.references
            ],
            "metadata": artifact.metadata,
            "rule_set": artifact.rule_set,
        }
        try:
            await self._connection.execute(insert(SCHEMAS).values(values))
        except IntegrityError:
            if schema_id is None:
                raise
            raise IdTaken(str(schema_id)) from None
        targets = dict.fromkeys((reference.subject, reference.version) for reference in artifact.references)
        if targets:
            rows = [{"schema_id": new_id, "subject": subject, "version": version} for subject, version in targets]
            await self._connection.execute(insert(REFERENCES), rows)
        return StoredSchema(id=new_id, artifact=artifact)

    async def _take_id(self, wanted: int | None) -> int:
        row = update(IDS).where(IDS.c.context == CONTEXT)
        if wanted is not None:
            await self._connection.execute(row.where(IDS.c.last_id < wanted).values(last_id=wanted))
            return wanted
        next_id: int = await self._connection.scalar(row.values(last_id=IDS.c.last_id + 1).returning(IDS.c.last_id))
        if next_id > MAX_ID:
            raise NoMoreIds
        return next_id

    async def remove_schema(self, schema_id: int) -> None:
        await self._connection.execute(delete(SCHEMAS).where(SCHEMAS.c.id == schema_id))

    async def subjects(self, prefix: str, deleted: Deleted, part: Part = WHOLE) -> list[str]:
        query = select(VERSIONS.c.subject).where(*_begins(prefix)).group_by(VERSIONS.c.subject)
        if deleted is Deleted.LEFT_OUT:
            query = query.where(_ALIVE)
        elif deleted is Deleted.ALONE:
            query = query.having(func.max(case((_ALIVE, 1), else_=0)) == 0)
        return await self._part(query.order_by(VERSIONS.c.subject), part, _first)

    async def every_version(
        self, prefix: str, *, deleted: bool, latest_only: bool = False, part: Part = WHOLE
    ) -> list[Version]:
        wanted = [*_begins(prefix), *([] if deleted else [_ALIVE])]
        query = select(VERSIONS).order_by(VERSIONS.c.subject, VERSIONS.c.version)
        if latest_only:
            other = VERSIONS.alias()
            newer = select(other.c.version).where(
                other.c.subject == VERSIONS.c.subject, other.c.version > VERSIONS.c.version
            )
            wanted.append(~exists(newer if deleted else newer.where(other.c.deleted.is_(false()))))
        return await self._part(query.where(*wanted), part, _version)

    async def version_counts(self) -> Mapping[tuple[str, bool], int]:
        groups = (SCHEMAS.c.schema_type, VERSIONS.c.deleted)
        query = select(*groups, func.count()).join(SCHEMAS, SCHEMAS.c.id == VERSIONS.c.schema_id).group_by(*groups)
        rows = await self._connection.execute(query)
        return {(kind, bool(deleted)): count for kind, deleted, count in rows}

    async def versions(self, subject: str) -> list[Version]:
        query = select(VERSIONS).where(VERSIONS.c.subject == subject).order_by(VERSIONS.c.version)
        return list(map(_version, await self._connection.execute(query)))

    async def version_numbers(self, subject: str, deleted: Deleted, part: Part = WHOLE) -> list[int]:
        query = select(VERSIONS.c.version).where(VERSIONS.c.subject == subject).order_by(VERSIONS.c.version)
        if deleted is not Deleted.INCLUDED:
            query = query.where(_ALIVE if deleted is Deleted.LEFT_OUT else ~_ALIVE)
        return await self._part(query, part, _first)

    async def version(self, subject: str, number: int | None, *, deleted: bool) -> Version | None:
        query = select(VERSIONS).where(VERSIONS.c.subject == subject).order_by(VERSIONS.c.version.desc()).limit(1)
        if number is not None:
            query = query.where(VERSIONS.c.version == number)
        if not deleted:
            query = query.where(_ALIVE)
        row = (await self._connection.execute(query)).one_or_none()
        return _version(row) if row is not None else None

    async def versions_of_schema(
        self, schema_id: int, *, deleted: bool = True, subject: str | None = None, part: Part = WHOLE
    ) -> list[Version]:
        query = select(VERSIONS).where(VERSIONS.c.schema_id == schema_id)
        if not deleted:
            query = query.where(_ALIVE)
        if subject is not None:
            query = query.where(VERSIONS.c.subject == subject)
        return await self._part(query.order_by(VERSIONS.c.subject, VERSIONS.c.version), part, _version)

    async def subjects_of_schema(self, schema_id: int, *, deleted: bool, part: Part = WHOLE) -> list[str]:
        query = select(VERSIONS.c.subject).where(VERSIONS.c.schema_id == schema_id).group_by(VERSIONS.c.subject)
        if not deleted:
            query = query.where(_ALIVE)
        return await self._part(query.order_by(VERSIONS.c.subject), part, _first)

    async def _part(self, query: Select[Any], part: Part, make: Callable[[Row[Any]], Item]) -> list[Item]:
        """Return a list, read in parts; other tasks run in between."""
        items: list[Item] = []
        while part.limit is None or len(items) < part.limit:
            most = _ROWS if part.limit is None else min(_ROWS, part.limit - len(items))
            rows = (await self._connection.execute(query.limit(most).offset(part.offset + len(items)))).all()
            items += map(make, rows)
            if len(rows) < most:
                break
        return items

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

    async def referenced_by(self, subject: str, version: int, *, deleted: bool = True, part: Part = WHOLE) -> list[int]:
        query = select(REFERENCES.c.schema_id).where(REFERENCES.c.subject == subject, REFERENCES.c.version == version)
        if not deleted:
            query = query.where(exists().where(VERSIONS.c.schema_id == REFERENCES.c.schema_id, _ALIVE))
        return await self._part(query.order_by(REFERENCES.c.schema_id), part, _first)

    async def setting(self, kind: Setting, subject: str) -> Json | None:
        rows = await self._connection.execute(
            select(SETTINGS.c.value).where(SETTINGS.c.kind == kind, SETTINGS.c.subject == subject)
        )
        value: Json | None = rows.scalar_one_or_none()
        return value

    async def settings(self, subject: str) -> Mapping[tuple[Setting, str], Json]:
        rows = await self._connection.execute(select(SETTINGS).where(SETTINGS.c.subject.in_((GLOBAL, subject))))
        return {(row.kind, row.subject): row.value for row in rows}

    async def put_setting(self, kind: Setting, subject: str, value: Json) -> None:
        await self.remove_setting(kind, subject)
        await self._connection.execute(insert(SETTINGS).values(kind=kind, subject=subject, value=dict(value)))

    async def remove_setting(self, kind: Setting, subject: str) -> None:
        await self._connection.execute(delete(SETTINGS).where(SETTINGS.c.kind == kind, SETTINGS.c.subject == subject))


def _first(row: Row[Any]) -> Any:
    return row[0]


def _begins(prefix: str) -> list[ColumnElement[bool]]:
    if "\0" in prefix:  # no name has it, and PostgreSQL refuses such text
        return [false()]
    conditions: list[ColumnElement[bool]] = [VERSIONS.c.subject >= prefix] if prefix else []
    below = prefix.rstrip(chr(sys.maxunicode))
    if below:
        following = ord(below[-1]) + 1
        following = _AFTER_SURROGATES if following == _SURROGATES else following
        conditions.append(VERSIONS.c.subject < below[:-1] + chr(following))
    return conditions


def _schema(row: Row[Any]) -> StoredSchema:
    columns = row._mapping
    return StoredSchema(
        id=columns["id"],
        artifact=Artifact(
            text=columns["text"],
            schema_type=columns["schema_type"],
            references=tuple(Reference(**reference) for reference in columns["references"]),
            metadata=columns["metadata"],
            rule_set=columns["rule_set"],
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
