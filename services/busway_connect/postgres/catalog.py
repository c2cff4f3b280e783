"""The database's tables and types.

Here: values, and their queries, on psycopg 3's blocking connection in the connector's thread.
Not here: Connect schemas (`columns`), the log's view (`pgoutput`).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]
SESSION: Final = (
    "-c datestyle=ISO,MDY -c intervalstyle=postgres -c timezone=UTC -c extra_float_digits=1 -c bytea_output=hex"
    " -c lc_monetary=C -c client_encoding=UTF8 -c statement_timeout=0 -c idle_in_transaction_session_timeout=0 -c row_security=off"
)
"""Session settings for a fixed text form of values. Statement limits do not apply, and rows hidden by a policy are an
error, like in pg_dump.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableId:
    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeInfo:
    """A type of the database.

    Attributes:
        kind: pg_type.typtype: b(ase), c(omposite), d(omain), e(num), r(ange), m(ultirange), p(seudo).
        element: type of an array's elements, else 0.
        base, base_modifier: a domain's base type.
    """

    oid: int
    name: str
    kind: str
    element: int = 0
    base: int = 0
    base_modifier: int = -1
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column; `default` is its expression as printed by PostgreSQL."""

    name: str
    type_oid: int
    type_modifier: int
    optional: bool
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table. `key` has the columns of its primary key, or of its first unique index without NULLs."""

    id: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    replica_identity: str = "d"

    def without(self, names: Collection[str]) -> "Table":
        return replace(self, columns=tuple(column for column in self.columns if column.name not in names))


class Types:
    """The database's types by oid. New ones are looked up on first use."""

    def __init__(self, known: Iterable[TypeInfo] = ()) -> None:
        self._known = {kind.oid: kind for kind in known}

    def __getitem__(self, oid: int) -> TypeInfo:
        return self._known.get(oid) or TypeInfo(oid=oid, name=f"oid {oid}", kind="b")

    def __contains__(self, oid: int) -> bool:
        return oid in self._known

    def replace(self, known: Iterable[TypeInfo]) -> None:
        self._known = {kind.oid: kind for kind in known}

    def resolved(self, oid: int, modifier: int) -> tuple[TypeInfo, int]:
        """Return the type under all domains, with the effective modifier."""
        info = self[oid]
        while info.kind == "d":
            modifier = info.base_modifier if info.base_modifier != -1 else modifier
            info = self[info.base]
        return info, modifier


_TYPES = """SELECT t.oid, t.typname, t.typtype, CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE 0 END, t.typbasetype, t.typtypmod,
    (SELECT array_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid)
    FROM pg_catalog.pg_type t"""
_TABLES = """SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
    ORDER BY 1, 2"""
_COLUMNS = """SELECT a.attname, a.atttypid, a.atttypmod, NOT a.attnotnull, pg_catalog.pg_get_expr(d.adbin, d.adrelid)
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_KEYS = """SELECT i.indisprimary, (SELECT array_agg(a.attname ORDER BY k.place) FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum WHERE k.place <= i.indnkeyatts),
        c.relreplident
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND (i.indisprimary OR i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
        AND i.indisvalid)
    LEFT JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
    WHERE n.nspname = %s AND c.relname = %s ORDER BY i.indisprimary DESC NULLS LAST, x.relname"""


def read_types(connection: Connection) -> list[TypeInfo]:
    rows = connection.execute(_TYPES).fetchall()
    return [
        TypeInfo(
            oid=oid,
            name=name,
            kind=kind,
            element=element,
            base=base,
            base_modifier=modifier,
            labels=tuple(labels or ()),
        )
        for oid, name, kind, element, base, modifier, labels in rows
    ]


def read_table_ids(connection: Connection) -> list[TableId]:
    """Read permanent non-system tables, ordered by schema and name."""
    tables = [TableId(schema=schema, name=name) for schema, name in connection.execute(_TABLES)]
    return sorted(tables, key=str)


def read_table(connection: Connection, table: TableId) -> Table | None:
    rows = connection.execute(_COLUMNS, (table.schema, table.name)).fetchall()
    keys = connection.execute(_KEYS, (table.schema, table.name)).fetchall()
    if not keys:
        return None
    columns = tuple(
        Column(name=name, type_oid=oid, type_modifier=modifier, optional=optional, default=default)
        for name, oid, modifier, optional, default in rows
    )
    return Table(id=table, columns=columns, key=tuple(keys[0][1] or ()), replica_identity=keys[0][2])
