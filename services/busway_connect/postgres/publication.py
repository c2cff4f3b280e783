"""A connector's publication: the part of the captured tables in the server's log.

Here: creating it, checking that it has all captured changes under their own names, its row filters and column lists.
Not here: the slot (`slots`).
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from busway_connect.connector import ConfigInvalid
from busway_connect.postgres.catalog import Connection, TableId
from busway_connect.postgres.settings import Settings

logger = logging.getLogger("busway.connect.postgres")
_OPERATIONS: Final = {"c": "insert", "u": "update", "d": "delete", "t": "truncate"}
_ANCESTRY: Final = """SELECT rn.nspname, r.relname, n.nspname, c.relname
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL pg_catalog.pg_partition_ancestors(c.oid) a JOIN pg_catalog.pg_class r ON r.oid = a.relid
    JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace
    WHERE c.relispartition AND r.oid <> c.oid"""
"""Partitions with each of their ancestor tables."""
_PARTITIONS: Final = f"{_ANCESTRY} AND c.relkind = 'r' ORDER BY 1, 2, 3, 4"
_LISTS_SINCE: Final = 150_000
"""Column lists and row filters exist since PostgreSQL 15."""
_PUBLISHED: Final = "SELECT schemaname, tablename, NULL, NULL FROM pg_catalog.pg_publication_tables WHERE pubname = %s"
_PUBLISHED_PARTS: Final = """SELECT p.schemaname, p.tablename, p.rowfilter, (SELECT array_agg(a.attname) FROM pg_catalog.pg_attribute a
        JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE (n.nspname, c.relname) = (p.schemaname, p.tablename) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
        AND a.attname <> ALL (p.attnames))
    FROM pg_catalog.pg_publication_tables p WHERE p.pubname = %s"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The published part of a table.

    Attributes:
        rows: row filter as SQL; None for all.
        left_out: columns missing in the column list.
    """

    rows: str | None = None
    left_out: frozenset[str] = frozenset()


def prepare_publication(connection: Connection, settings: Settings, tables: list[TableId]) -> dict[TableId, Published]:
    """Create the publication if allowed. Check that it has all tables.

    Returns:
        the tables under whose names changes are sent: a partitioned table or its partitions, as a snapshot of both
            would
        duplicate rows.

    Raises:
        ConfigInvalid: missing, lacks a captured table, or sends its changes under another name.
    """
    name = sql.Identifier(settings.publication)
    listed = sql.SQL(", ").join(sql.Identifier(table.schema, table.name) for table in tables)
    mode = settings.publication_mode
    existing = connection.execute(
        "SELECT puballtables FROM pg_catalog.pg_publication WHERE pubname = %s", (settings.publication,)
    ).fetchone()
    if existing is None and mode == "disabled":
        raise ConfigInvalid(
            {
                "publication.name": f"there is no publication {settings.publication}; CREATE PUBLICATION {settings.publication}"
                " FOR ALL TABLES, or set publication.autocreate.mode"
            }
        )
    if mode == "filtered" and not (existing is not None and existing[0]):
        if not tables:
            raise ConfigInvalid({"table.include.list": "chooses no table, so that there is nothing to publish"})
        verb = sql.SQL(
            "CREATE PUBLICATION {} FOR TABLE {}" if existing is None else "ALTER PUBLICATION {} SET TABLE {}"
        )
        connection.execute(verb.format(name, listed))
    elif existing is None:
        connection.execute(sql.SQL("CREATE PUBLICATION {} FOR ALL TABLES").format(name))
    _require_tables(connection, settings, tables)
    row = connection.execute(
        "SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_catalog.pg_publication WHERE pubname = %s",
        (settings.publication,),
    ).fetchone()
    assert row is not None, "the publication is there"
    query = _PUBLISHED_PARTS if connection.info.server_version >= _LISTS_SINCE else _PUBLISHED
    published = {
        TableId(schema=schema, name=name): Published(rows=rows, left_out=frozenset(left_out or ()))
        for schema, name, rows, left_out in connection.execute(query, (settings.publication,))
    }
    _require_names(connection, settings, set(tables), published.keys())
    left_out = [
        name
        for (letter, name), published in zip(_OPERATIONS.items(), row, strict=True)
        if not published and letter not in settings.skipped_operations
    ]
    if left_out:
        logger.warning(
            "the publication %s does not publish %s; ALTER PUBLICATION %s SET (publish = 'insert, update, delete, truncate')",
            settings.publication,
            ", ".join(left_out),
            settings.publication,
        )
    if not tables:
        logger.warning("table.include.list and its like chooses no table that is there; it has the form schema\\.table")
    return published


def _require_tables(connection: Connection, settings: Settings, tables: list[TableId]) -> None:
    rows = connection.execute(
        "SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind = 'r' AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_tables p WHERE p.pubname = %s"
        " AND (p.schemaname, p.tablename) = (n.nspname, c.relname) OR p.pubname = %s AND EXISTS (SELECT FROM"
        " pg_catalog.pg_partition_ancestors(c.oid) a JOIN pg_catalog.pg_class r ON r.oid = a.relid JOIN"
        " pg_catalog.pg_namespace m ON m.oid = r.relnamespace WHERE (m.nspname, r.relname) = (p.schemaname, p.tablename)))",
        (settings.publication, settings.publication),
    ).fetchall()
    unpublished = {TableId(schema=schema, name=name) for schema, name in rows}
    missing = [str(table) for table in tables if table in unpublished]
    if missing:
        names = ", ".join(missing)
        raise ConfigInvalid(
            {
                "publication.name": f"{settings.publication} leaves out {names}; ALTER PUBLICATION {settings.publication} ADD"
                f" TABLE {names}, or leave them out of table.include.list"
            }
        )


def once_each(connection: Connection, tables: list[TableId]) -> dict[TableId, Published]:
    chosen = set(tables)
    doubled = {
        TableId(schema=schema, name=name)
        for root_schema, root_name, schema, name in connection.execute(_ANCESTRY)
        if TableId(schema=root_schema, name=root_name) in chosen
    }
    return {table: Published() for table in tables if table not in doubled}


def _require_names(
    connection: Connection, settings: Settings, captured: set[TableId], published: Collection[TableId]
) -> None:
    """Check that partitions' changes come under a captured table's name."""
    leaves: dict[TableId, list[str]] = {}
    for root_schema, root_name, schema, name in connection.execute(_PARTITIONS):
        root, leaf = TableId(schema=root_schema, name=root_name), TableId(schema=schema, name=name)
        if root in published and leaf in captured and root not in captured:
            raise ConfigInvalid(
                {
                    "table.include.list": f"the changes of {leaf} come as those of {root}, because {settings.publication} has"
                    " publish_via_partition_root; choose that table"
                }
            )
        if root not in published and root in captured and leaf not in captured:
            leaves.setdefault(root, []).append(str(leaf))
    for root, missing in leaves.items():
        raise ConfigInvalid(
            {
                "table.include.list": f"{root} is partitioned and its changes come as those of its partitions: choose {', '.join(missing)}"
                f" too, or ALTER PUBLICATION {settings.publication} SET (publish_via_partition_root = true)"
            }
        )
