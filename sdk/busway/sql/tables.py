"""Busway's tables in a service's database.

Here: `Tables`, their columns, creation.
Not here: reading and writing (`inbox`, `outbox`, `relay`).

A service with migrations adds `TABLES.metadata` to Alembic's metadata and passes `create_tables=False`.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.schema import CreateIndex, CreateTable

from busway.app.model.topic import BadDeclaration

DIALECTS: Final = ("postgresql", "sqlite")
_TOPIC: Final = String(249)
_LOCK_NAME: Final = "busway create tables"


class Tables:
    """Inbox, floors and outbox under chosen names.

    Args:
        prefix: of the names of tables and indexes.
        schema: of the tables; None is the database's default. It must exist.
        metadata: declares them; by default a new `MetaData`.
    """

    def __init__(self, *, prefix: str = "busway_", schema: str | None = None, metadata: MetaData | None = None) -> None:
        self.metadata: MetaData = metadata if metadata is not None else MetaData()
        self.inbox: Table = Table(
            f"{prefix}inbox",
            self.metadata,
            Column("group_id", Text, primary_key=True),
            Column("topic", _TOPIC, primary_key=True),
            Column("partition", Integer, primary_key=True),
            Column("offset", BigInteger, primary_key=True, autoincrement=False),
            schema=schema,
        )
        """A row for each handled record at or above the floor."""
        self.floors: Table = Table(
            f"{prefix}floors",
            self.metadata,
            Column("group_id", Text, primary_key=True),
            Column("topic", _TOPIC, primary_key=True),
            Column("partition", Integer, primary_key=True),
            Column("floor", BigInteger, nullable=False),
            Column("started", BigInteger, nullable=False),
            Column("topic_id", Uuid, nullable=True),
            schema=schema,
        )
        """The floor of each partition: all below it is finished. 0 before the first commit.

        `started` is the group's first offset; `topic_id` distinguishes a deleted topic from its successor of the same
        name.
        """
        position = BigInteger().with_variant(Integer, "sqlite")
        self.outbox: Table = Table(
            f"{prefix}outbox",
            self.metadata,
            Column("position", position, Identity(always=True), primary_key=True),
            Column("id", Uuid, nullable=False),
            Column("aggregatetype", _TOPIC, nullable=False),
            Column("aggregateid", LargeBinary, nullable=True),
            Column("type", String(255), nullable=False),
            Column("payload", LargeBinary, nullable=True),
            Column("headers", Text, nullable=False),
            Column("partition", Integer, nullable=True),
            Column("timestamp_ms", BigInteger, nullable=False),
            Column("published_ms", BigInteger, nullable=True),
            schema=schema,
            sqlite_autoincrement=True,
        )
        """Records to publish; columns in `outbox`."""
        unpublished = self.outbox.c.published_ms.is_(None)
        Index(
            f"{prefix}outbox_unpublished",
            self.outbox.c.position,
            postgresql_where=unpublished,
            sqlite_where=unpublished,
        )

    def create(self, connection: Connection) -> None:
        if connection.dialect.name == "postgresql":
            # IF NOT EXISTS does not prevent a collision of concurrent creations of a type.
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:name))"), {"name": _LOCK_NAME})
        for table in (self.inbox, self.floors, self.outbox):
            connection.execute(CreateTable(table, if_not_exists=True))
            for index in table.indexes:
                connection.execute(CreateIndex(index, if_not_exists=True))


TABLES: Final = Tables()
"""Default names: `busway_inbox`, `busway_floors`, `busway_outbox`."""


async def create_all(engine: AsyncEngine, tables: Tables = TABLES) -> None:
    """Create missing tables; safe when several instances do so at once."""
    async with engine.begin() as connection:
        await connection.run_sync(tables.create)


def check_dialect(engine: AsyncEngine, what: str) -> None:
    """Raise `BadDeclaration` for databases other than SQLite and PostgreSQL."""
    if engine.dialect.name not in DIALECTS:
        raise BadDeclaration(
            f"{what} works with PostgreSQL (postgresql+psycopg://…) and SQLite (sqlite+aiosqlite:///…), "
            f"not with {engine.dialect.name}"
        )
