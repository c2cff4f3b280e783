"""A connector's publication: what of the captured tables the server puts into the log that it sends.

What lives here: making it where it is missing, and seeing that no captured change would be left out or come under another name. What does
not: the slot (`slots`).
"""

import logging
from typing import Final

from psycopg import sql

from busway_connect.connector import ConfigInvalid
from busway_connect.postgres.catalog import Connection, TableId
from busway_connect.postgres.settings import Settings

log = logging.getLogger("busway.connect.postgres")
_OPERATIONS: Final = {"c": "insert", "u": "update", "d": "delete", "t": "truncate"}
_PARTITIONS: Final = """SELECT rn.nspname, r.relname, n.nspname, c.relname
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL pg_catalog.pg_partition_ancestors(c.oid) a JOIN pg_catalog.pg_class r ON r.oid = a.relid
    JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace
    WHERE c.relispartition AND c.relkind = 'r' AND r.oid <> c.oid ORDER BY 1, 2, 3, 4"""
"""Partitions that hold rows, each with every table that it is a part of."""


def prepare_publication(connection: Connection, settings: Settings, tables: list[TableId]) -> None:
    """Make the publication where it is missing and may be made, and see that every table is in it.

    Raises:
        ConfigInvalid: there is none, or it leaves out a captured table or tells its changes as another's; says what mends it.
    """
    name = sql.Identifier(settings.publication)
    listed = sql.SQL(", ").join(sql.Identifier(one.schema, one.name) for one in tables)
    mode = settings.publication_mode
    found = connection.execute(
        "SELECT puballtables FROM pg_catalog.pg_publication WHERE pubname = %s", (settings.publication,)
    ).fetchone()
    if found is None and mode == "disabled":
        raise ConfigInvalid(
            {
                "publication.name": f"there is no publication {settings.publication}; CREATE PUBLICATION {settings.publication}"
                " FOR ALL TABLES, or set publication.autocreate.mode"
            }
        )
    if mode == "filtered" and not (found is not None and found[0]):
        if not tables:
            raise ConfigInvalid({"table.include.list": "chooses no table, so that there is nothing to publish"})
        verb = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}" if found is None else "ALTER PUBLICATION {} SET TABLE {}")
        connection.execute(verb.format(name, listed))
    elif found is None:
        connection.execute(sql.SQL("CREATE PUBLICATION {} FOR ALL TABLES").format(name))
    _require_tables(connection, settings, tables)
    row = connection.execute(
        "SELECT pubviaroot, pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_catalog.pg_publication WHERE pubname = %s",
        (settings.publication,),
    ).fetchone()
    assert row is not None, "the publication is there"
    _require_names(connection, settings, set(tables), via_root=row[0])
    left_out = [
        name
        for (letter, name), published in zip(_OPERATIONS.items(), row[1:], strict=True)
        if not published and letter not in settings.skipped_operations
    ]
    if left_out:
        log.warning(
            "the publication %s does not publish %s; ALTER PUBLICATION %s SET (publish = 'insert, update, delete, truncate')",
            settings.publication,
            ", ".join(left_out),
            settings.publication,
        )
    if not tables:
        log.warning("table.include.list and its like chooses no table that is there; it has the form schema\\.table")


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
    missing = [str(one) for one in tables if one in unpublished]
    if missing:
        names = ", ".join(missing)
        raise ConfigInvalid(
            {
                "publication.name": f"{settings.publication} leaves out {names}; ALTER PUBLICATION {settings.publication} ADD"
                f" TABLE {names}, or leave them out of table.include.list"
            }
        )


def _require_names(connection: Connection, settings: Settings, captured: set[TableId], *, via_root: bool) -> None:
    """See that the changes of partitioned tables come under the name of a captured table."""
    leaves: dict[TableId, list[str]] = {}
    for root_schema, root_name, schema, name in connection.execute(_PARTITIONS):
        root, leaf = TableId(schema=root_schema, name=root_name), TableId(schema=schema, name=name)
        if via_root and leaf in captured and root not in captured:
            raise ConfigInvalid(
                {
                    "table.include.list": f"the changes of {leaf} come as those of {root}, because {settings.publication} has"
                    " publish_via_partition_root; choose that table"
                }
            )
        if not via_root and root in captured and leaf not in captured:
            leaves.setdefault(root, []).append(str(leaf))
    for root, missing in leaves.items():
        raise ConfigInvalid(
            {
                "table.include.list": f"{root} is partitioned and its changes come as those of its partitions: choose {', '.join(missing)}"
                f" too, or ALTER PUBLICATION {settings.publication} SET (publish_via_partition_root = true)"
            }
        )
