"""Database tables for the SQL sink: reflecting, creating, widening, writing.

Here: SQLAlchemy's part, and statements for each insert mode; SQLite and PostgreSQL.
Not here: mapping records to rows (`sql_sink`).
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import Column, Connection, Engine, Index, MetaData, Table, delete, insert, inspect, types, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import NoSuchTableError
from sqlalchemy.schema import CreateColumn
from sqlalchemy.sql import bindparam
from sqlalchemy.sql.base import Executable

from busway_connect.connector import ConfigInvalid
from busway_connect.sql_values import Kind, Listed

DIALECTS: Final = ("sqlite", "postgresql")
_CANCEL_S: Final = 2.0


_OWN_FORM: Final = (types.JSON, types.Uuid, types.ARRAY)
"""Column types with values in the database's form, such as JSON text, which SQLAlchemy would convert."""


class _AsItIs(types.UserDefinedType[Any]):
    """A parameter passed to the driver unchanged. The database converts it by column."""

    cache_ok = True


def _has_more_digits(value: Decimal, kind: types.Numeric[Any]) -> bool:
    if isinstance(kind, types.Float) or kind.scale is None or kind.precision is None:
        return False
    _, digits, exponent = value.as_tuple()
    more = -exponent - kind.scale if isinstance(exponent, int) else 0
    return more > 0 and any(digits[-more:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A record's effect on a table.

    Attributes:
        table: name, after its schema and a dot if any.
        values: of the other columns; None deletes the row.
        partial: missing columns keep their values in an existing row.
    """

    table: str
    key: Mapping[str, Any]
    values: Mapping[str, Any] | None
    kinds: Mapping[str, Kind]
    partial: bool = False

    @property
    def shape(self) -> tuple[str, tuple[str, ...], tuple[str, ...] | None, bool]:
        """Key of the statement, which rows of equal shape share."""
        return self.table, tuple(self.key), None if self.values is None else tuple(self.values), self.partial


class Interrupted(Exception):
    """The sink is stopping; the transaction is rolled back."""


class Tables:
    """Writes rows.

    Args:
        evolve: create missing tables and columns.
    """

    def __init__(self, engine: Engine, mode: str, *, evolve: bool) -> None:
        self._engine = engine
        self._mode = mode
        self._evolve = evolve
        self._known: dict[str, Table] = {}
        self._prefixes: dict[str, str] = {}
        self._busy: Any = None
        self._ended = False
        self._statements: dict[Any, Executable] = {}

    def forget(self) -> None:
        self._known.clear()
        self._statements.clear()

    def interrupt(self) -> None:
        """Write nothing more, and cancel the current statement; called from another thread."""
        self._ended = True
        busy = self._busy
        if busy is None:
            return
        if self._engine.dialect.name == "postgresql":
            busy.cancel_safe(timeout=_CANCEL_S)
        else:
            busy.interrupt()

    def write(self, rows: Sequence[Row]) -> None:
        """Write all rows in order, in one transaction.

        Raises:
            Interrupted: `interrupt` was called; nothing is written.
            ConfigInvalid: a table or a column is missing and may not be created.
            sqlalchemy.exc.SQLAlchemyError: an error of the database.
        """
        for row in rows:
            self._ready(row)
        with self._engine.begin() as connection, self._interruptible(connection):
            run: list[Row] = []
            for row in rows:
                if run and row.shape != run[0].shape:
                    self._run(connection, run)
                    run = []
                run.append(row)
            if run:
                self._run(connection, run)

    @contextlib.contextmanager
    def _interruptible(self, connection: Connection) -> Iterator[None]:
        self._busy = connection.connection.driver_connection
        try:
            if self._ended:
                raise Interrupted
            yield
            if self._ended:
                raise Interrupted
        finally:
            self._busy = None

    def _run(self, connection: Connection, rows: Sequence[Row]) -> None:
        first = rows[0]
        names = self._parameters(first)
        kinds = [column.type for column in self._columns(first)]
        parameters = [
            {
                name: self._fitted(kind, value)
                for name, kind, value in zip(
                    names, kinds, (*row.key.values(), *(row.values or {}).values()), strict=True
                )
            }
            for row in rows
        ]
        if first.partial and first.values and self._mode == "upsert":
            # An INSERT needs every NOT NULL column, even if the row exists.
            for values in parameters:
                if not connection.execute(self._statement(first, "update"), values).rowcount:
                    connection.execute(self._statement(first, "upsert"), values)
            return
        connection.execute(self._statement(first, self._mode), parameters)

    def _parameters(self, row: Row) -> list[str]:
        """Return parameter names for a row's values, key first. None equals a column's name, which SQLAlchemy would
        bind to that column.
        """
        prefix = self._prefixes[row.table]
        return [f"{prefix}{number}" for number in range(len(row.key) + len(row.values or {}))]

    def _fitted(self, kind: Kind, value: Any) -> Any:
        if isinstance(value, Listed):
            return value.items if isinstance(kind, types.ARRAY) else value.text
        rounds = self._engine.dialect.name == "postgresql"  # SQLite keeps all digits
        if rounds and isinstance(value, float | Decimal) and isinstance(kind, types.Integer) and value % 1:
            raise ValueError(f"{value} is no whole number, and the column holds nothing else")
        if rounds and isinstance(value, Decimal) and isinstance(kind, types.Numeric) and _has_more_digits(value, kind):
            raise ValueError(
                f"{value} has more than {kind.scale} digits behind the point, and the column would round it; widen the column"
            )
        return value

    def _columns(self, row: Row) -> list[Column[Any]]:
        table = self._known[row.table]
        return [table.c[name] for name in (*row.key, *(row.values or {}))]

    def _statement(self, row: Row, mode: str) -> Executable:
        known = (row.shape, mode)
        if known not in self._statements:
            self._statements[known] = self._made(row, mode)
        return self._statements[known]

    def _made(self, row: Row, mode: str) -> Executable:
        table = self._known[row.table]
        given: list[Any] = [
            bindparam(name, type_=_AsItIs() if isinstance(column.type, _OWN_FORM) else None)
            for name, column in zip(self._parameters(row), self._columns(row), strict=True)
        ]
        conditions = [table.c[name] == parameter for name, parameter in zip(row.key, given, strict=False)]
        if row.values is None:
            return delete(table).where(*conditions)
        if mode == "update":
            return update(table).where(*conditions).values(dict(zip(row.values, given[len(row.key) :], strict=True)))
        values = dict(zip([*row.key, *row.values], given, strict=True))
        if not row.key:
            return insert(table).values(values)
        make = postgresql.insert if self._engine.dialect.name == "postgresql" else sqlite.insert
        statement = make(table).values(values)
        if mode == "insert" or not row.values:
            # A record repeated after a crash exists already.
            return statement.on_conflict_do_nothing(index_elements=list(row.key))
        changes = {name: statement.excluded[name] for name in row.values}
        return statement.on_conflict_do_update(index_elements=list(row.key), set_=changes)

    # Tables

    def _ready(self, row: Row) -> None:
        table = self._known.get(row.table)
        if table is None:
            table = self._reflect(row.table)
        if table is None:
            table = self._create(row)
        wanted = [*row.key, *(row.values or {})]
        missing = [name for name in wanted if name not in table.c]
        if missing:
            table = self._widen(row, missing)
        unkeyed = (
            self._mode != "update" and row.values is not None and row.key and not self._is_unique(table, set(row.key))
        )
        if unkeyed:
            raise ConfigInvalid(
                {
                    "primary.key.mode": f"the table {row.table} has no primary key or unique index on "
                    f"{', '.join(row.key)}, without which a row cannot be found again; give it one, or choose others"
                }
            )

    def _is_unique(self, table: Table, key: set[str]) -> bool:
        if {column.name for column in table.primary_key.columns} == key:
            return True
        return any(index.unique and {column.name for column in index.columns} == key for index in table.indexes)

    def _reflect(self, name: str) -> Table | None:
        schema, _, simple = name.rpartition(".")
        try:
            table = Table(simple, MetaData(), schema=schema or None, autoload_with=self._engine)
        except NoSuchTableError:
            return None
        for constraint in inspect(self._engine).get_unique_constraints(simple, schema=schema or None):
            Index(None, *(table.c[column] for column in constraint["column_names"]), unique=True)
        prefix = "p"
        while any(column.startswith(prefix) for column in table.c.keys()):  # noqa: SIM118 - a collection of columns, not a dict
            prefix += "_"
        self._prefixes[name] = prefix
        self._known[name] = table
        return table

    def _create(self, row: Row) -> Table:
        if not self._evolve:
            raise ConfigInvalid(
                {"schema.evolution": f"the table {row.table} does not exist; create it, or set schema.evolution=basic"}
            )
        schema, _, simple = row.table.rpartition(".")
        columns = [Column(name, row.kinds[name], primary_key=True, autoincrement=False) for name in row.key]
        columns += [Column(name, row.kinds[name], nullable=True) for name in row.values or {}]
        Table(simple, MetaData(), *columns, schema=schema or None).create(self._engine, checkfirst=True)
        table = self._reflect(row.table)
        assert table is not None, "the table was created"
        return table

    def _widen(self, row: Row, missing: Sequence[str]) -> Table:
        if not self._evolve:
            raise ConfigInvalid(
                {
                    "schema.evolution": f"the table {row.table} has no column {', '.join(missing)}; add it, or set "
                    "schema.evolution=basic"
                }
            )
        table = self._known[row.table]
        quoted = self._engine.dialect.identifier_preparer.format_table(table)
        with self._engine.begin() as connection:
            there = {column["name"] for column in inspect(connection).get_columns(table.name, schema=table.schema)}
            for name in missing:
                if name not in there:
                    column = CreateColumn(Column(name, row.kinds[name], nullable=True)).compile(
                        dialect=self._engine.dialect
                    )
                    connection.exec_driver_sql(f"ALTER TABLE {quoted} ADD COLUMN {column}")
        self.forget()
        widened = self._reflect(row.table)
        assert widened is not None, "the table was there a moment ago"
        return widened
