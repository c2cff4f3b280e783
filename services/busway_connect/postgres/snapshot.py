"""Existing rows, read before the log.

Here: reading tables under one snapshot, in key order, from any row on; the marks `first`, `last`, …
Not here: the snapshot's origin (`reader`), records (`records`).

Tables are read in the order of `schema.table`, rows by key, so that a position identifies the rows before it. Tables
without a key, or whose key Python cannot order like the server or has a masked or omitted column, are read again from
the beginning, or from the stored key.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, LiteralString

from psycopg import sql

from busway_connect.connector import SourceRecord
from busway_connect.postgres import values
from busway_connect.postgres.catalog import Column, Connection, Table, TableId, Types
from busway_connect.postgres.pgoutput import Row
from busway_connect.postgres.positions import InSnapshot
from busway_connect.postgres.records import Layout, Origin
from busway_connect.postgres.stream import Headers

_COLLATED: Final = frozenset({"text", "varchar", "name"})
"""Types ordered by UTF-8 bytes, like in Python."""
_IN_PYTHON: Final[dict[str, Callable[[str], int | str]]] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), int),
    **dict.fromkeys(("text", "varchar", "name", "uuid", "bytea", "bool"), str),
    "date": values.date,
    "timestamp": values.timestamp_us,
    "timestamptz": values.timestamp_us,
}
"""By type: key text → a value that Python orders alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    places: tuple[int, ...]
    terms: tuple[sql.Composable, ...]
    collated: tuple[bool, ...]
    in_python: tuple[Callable[[str], int | str], ...] | None


class Snapshot:
    """A reading of the tables.

    Args:
        tables: all captured ones, in order.
        position: of the last row returned.
        filters: row filters by table, as SQL; all rows if absent.
    """

    def __init__(
        self,
        connection: Connection,
        tables: list[Table],
        position: InSnapshot,
        *,
        layout: Callable[[Table], Layout],
        types: Types,
        headers: Headers,
        filters: Mapping[TableId, LiteralString],
    ) -> None:
        self._connection = connection
        self._tables = tables
        self._position = position
        self._layout = layout
        self._types = types
        self._headers = headers
        self._filters = filters
        self._partition: Mapping[str, str] = {}

    def records(self, partition: Mapping[str, str]) -> Iterator[SourceRecord]:
        """Yield the rows after the position with marks, the final one `last`."""
        self._partition = partition
        held: tuple[Layout, Row, InSnapshot, str, str] | None = None
        for number, table in enumerate(self._tables):
            if self._position.table is not None and str(table.id) < self._position.table:
                continue
            layout = self._layout(table)
            key = self._key(table, layout)
            resumed = str(table.id) == self._position.table and self._position.key is not None
            first = True
            for cells in self._rows(table, key, resumed=resumed):
                if held is not None:
                    yield self._record(held[0], held[1], held[2], held[3] if held[0] is layout else held[4])
                middle, end = "true", "last_in_data_collection"
                if first and not resumed:
                    middle = "first_in_data_collection"
                    if number == 0:
                        middle = end = "first"
                held = (layout, cells, self._at(table, key, cells), middle, end)
                first = False
        if held is not None:
            yield self._record(held[0], held[1], replace(held[2], last=True), "last")

    def _key(self, table: Table, layout: Layout) -> _Key | None:
        if not layout.columns >= set(table.key) or layout.hides(table.key):
            return (
                None  # positions are stored and in each record's header: masked or omitted values must not leak there
            )
        by_name = {column.name: (place, column) for place, column in enumerate(table.columns)}
        chosen = [by_name[name] for name in table.key]
        if not chosen or any(column.optional for _, column in chosen):
            return None
        names = [self._type_name(column) for _, column in chosen]
        in_python = tuple(_IN_PYTHON[name] for name in names) if all(name in _IN_PYTHON for name in names) else None
        collated = tuple(name in _COLLATED for name in names)
        terms = tuple(_term(sql.Identifier(column.name), c) for (_, column), c in zip(chosen, collated, strict=True))
        return _Key(places=tuple(place for place, _ in chosen), terms=terms, collated=collated, in_python=in_python)

    def _type_name(self, column: Column) -> str:
        return self._types.resolved(column.type_oid, column.type_modifier)[0].name

    def _rows(self, table: Table, key: _Key | None, *, resumed: bool) -> Iterator[Row]:
        parts: list[sql.Composable] = [
            sql.SQL("COPY (SELECT {} FROM {}").format(
                sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns),
                sql.Identifier(table.id.schema, table.id.name),
            )
        ]
        conditions: list[sql.Composable] = []
        if table.id in self._filters:
            conditions.append(sql.SQL("({})").format(sql.SQL(self._filters[table.id])))
        if key is not None:
            terms = sql.SQL(", ").join(key.terms)
            if resumed:
                assert self._position.key is not None
                after = [_term(sql.Literal(text), c) for text, c in zip(self._position.key, key.collated, strict=True)]
                conditions.append(sql.SQL("({}) > ({})").format(terms, sql.SQL(", ").join(after)))
        if conditions:
            parts.append(sql.SQL("WHERE {}").format(sql.SQL(" AND ").join(conditions)))
        if key is not None:
            parts.append(sql.SQL("ORDER BY {}").format(terms))
        parts.append(sql.SQL(") TO STDOUT"))
        with self._connection.cursor() as cursor, cursor.copy(sql.SQL(" ").join(parts)) as copy:
            yield from copy.rows()

    def _at(self, table: Table, key: _Key | None, cells: Row) -> InSnapshot:
        texts = None if key is None else tuple(str(cells[place]) for place in key.places)
        order = None
        if key is not None and key.in_python is not None and texts is not None:
            order = tuple(read(text) for read, text in zip(key.in_python, texts, strict=True))
        return replace(self._position, table=str(table.id), key=texts, order=order)

    def _record(self, layout: Layout, cells: Row, at: InSnapshot, mark: str) -> SourceRecord:
        origin = Origin(at_us=at.at_us, snapshot=mark, lsn=at.lsn, xid=at.xid, commit_lsn=None)
        (part,) = layout.created(cells, origin, time.time_ns(), op="r")
        return SourceRecord(
            topic=layout.topic,
            key=part.key,
            key_schema=layout.key_schema,
            value=part.value,
            value_schema=layout.schema,
            partition=self._partition,
            offset=at.offset(),
            headers=self._headers,
        )


def _term(value: Any, collated: bool) -> sql.Composable:
    template: LiteralString = '{} COLLATE "C"' if collated else "{}"
    return sql.SQL(template).format(value)
