"""The SQL sink: topics → tables, with setting names of Confluent's and Debezium's JDBC sinks.

Here: mapping of records to rows.
Not here: tables (`sql_tables`), values (`sql_values`).

Records are plain values or Debezium's envelopes, of which the row after the change is written. A tombstone or delete
deletes the row with `delete.enabled=true`, which needs `primary.key.mode=record_key`. With a primary key writes are
repeatable: `upsert` overwrites the row, `insert` keeps the existing one. Columns with Debezium's placeholder for
unavailable values stay unchanged.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)

from busway_connect.connector import Config, ConfigInvalid, RecordRefused, Retriable, Setting, Sink, SinkRecord
from busway_connect.schema import Schema
from busway_connect.sql_tables import DIALECTS, Row, Tables
from busway_connect.sql_values import Kind, column_type, column_value, unavailable
from busway_connect.transforms.unwrap import is_envelope, part_schema

_CHOICES: Final = {
    "insert.mode": ("insert", "upsert", "update"),
    "primary.key.mode": ("none", "kafka", "record_key", "record_value"),
    "schema.evolution": ("none", "basic"),
    "delete.enabled": ("true", "false"),
}
_OTHER_NAMES: Final = {
    "connection.user", "pk.mode", "pk.fields", "table.name.format", "auto.create", "auto.evolve",
}  # fmt: skip
_KAFKA: Final = ("__connect_topic", "__connect_partition", "__connect_offset")
_BATCH: Final = 500
_PASSING: Final = frozenset({"08", "25", "40", "53", "55", "57", "58"})
"""Temporary SQLSTATE classes: connection, read-only server, serialization, resources, lock unavailable, operator
intervention, system error.
"""
_INTERRUPT_EVERY_S: Final = 0.5
_INTERRUPTS: Final = 20
"""Limit of interrupts; then the write is abandoned, as the server does not respond."""
_FORBIDDEN: Final = "42501"
_REFUSED_STATES: Final = ("28", "3D")
"""SQLSTATE classes of refused logins: authentication, missing database."""
_REFUSED_WORDS: Final = (
    "password authentication failed", "no password supplied", "fe_sendauth", "no pg_hba.conf entry", "authentication failed for user",
    "is not permitted to log in", "FATAL:  role ", "FATAL:  database ",
)  # fmt: skip
"""Texts of refused logins without a SQLSTATE, as from libpq while connecting."""
_BAD_VALUE: Final = (ValueError, TypeError, KeyError, OverflowError, RecursionError)


class JdbcSink(Sink):
    class_names: ClassVar[tuple[str, ...]] = (
        "io.debezium.connector.jdbc.JdbcSinkConnector",
        "io.confluent.connect.jdbc.JdbcSinkConnector",
    )
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(name="connection.url", doc="SQLAlchemy's URL of the database, or JDBC's", required=True, importance="HIGH"),
        Setting(name="connection.username", doc="User, where the URL names none (connection.user is accepted too)"),
        Setting(name="connection.password", doc="Password, where the URL has none", type="PASSWORD"),
        Setting(name="insert.mode", doc="insert, upsert or update", default="insert", importance="HIGH"),
        Setting(name="primary.key.mode", doc="none, kafka, record_key or record_value (pk.mode is accepted too)", default="none"),
        Setting(name="primary.key.fields", doc="Columns of the primary key, with commas (pk.fields is accepted too)", default=""),
        Setting(name="delete.enabled", doc="Whether tombstones and deletes take rows away", default="false", type="BOOLEAN"),
        Setting(name="collection.name.format", doc="Name of the table; ${topic} with _ for dots, ${source.table} of an envelope", default="${topic}"),
        Setting(name="schema.evolution", doc="basic makes tables and columns that are missing", default="none"),
        Setting(name="unavailable.value.placeholder", doc="The source's placeholder for what it does not know; such a column stays as it is", default="__debezium_unavailable_value"),
        Setting(name="batch.size", doc="The most rows of one transaction", default=str(_BATCH), type="INT"),
    )  # fmt: skip
    fixed: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "truncate.enabled": ("false",),
        "table.types": ("table",),
        "quote.sql.identifiers": ("always",),
        "quote.identifiers": ("true",),
        "use.time.zone": ("utc",),
        "db.timezone": ("utc",),
        "column.naming.strategy": ("io.debezium.connector.jdbc.naming.defaultcolumnnamingstrategy",),
        "collection.naming.strategy": ("io.debezium.connector.jdbc.naming.defaultcollectionnamingstrategy",),
    }
    inert: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            (
                "connection.provider",
                "connection.pool.min_size",
                "connection.pool.max_size",
                "connection.pool.acquire_increment",
                "connection.pool.timeout",
                "connection.restart.on.errors",
                "connection.attempts",
                "connection.backoff.ms",
                "flush.max.retries",
                "flush.retry.delay.ms",
                "max.retries",
                "retry.backoff.ms",
                "use.reduction.buffer",
            ),
            "how fast and how often tried; no row is another one for it",
        ),
        "trim.sensitive.log": "values of records are not logged at all",
    }

    def __init__(self, name: str, config: Config) -> None:
        super().__init__(name, config)
        read = _read(config)
        self._url = read["connection.url"]
        self._mode = read["insert.mode"]
        self._key_mode = read["primary.key.mode"]
        self._key_fields = [name.strip() for name in read["primary.key.fields"].split(",") if name.strip()]
        self._deletes = read["delete.enabled"] == "true"
        self._format = read["collection.name.format"]
        self._evolve = read["schema.evolution"] == "basic"
        self._unavailable = unavailable(read["unavailable.value.placeholder"])
        self._batch = int(read["batch.size"])
        self._engine: Engine | None = None
        self._tables: Tables | None = None
        self._dialect = ""
        self._job: asyncio.Future[None] | None = None

    @classmethod
    def serves(cls, name: str) -> bool:
        """Accept Debezium's names, and Confluent's for the same."""
        return name in _OTHER_NAMES or super().serves(name)

    @classmethod
    def validate(cls, config: Config) -> dict[str, str]:
        read = _read(config)
        wrong = {
            name: f"is one of {', '.join(choices)}, not {read[name]!r}"
            for name, choices in _CHOICES.items()
            if read[name] not in choices
        }
        if wrong:
            return wrong
        mode = read["primary.key.mode"]
        if read["insert.mode"] != "insert" and mode in {"none", "kafka"}:
            wrong["primary.key.mode"] = (
                f"insert.mode={read['insert.mode']} finds rows by a key: set record_key or record_value"
            )
        if read["delete.enabled"] == "true" and mode != "record_key":
            wrong["delete.enabled"] = "a delete has nothing but its key: set primary.key.mode=record_key"
        fields = [name for name in read["primary.key.fields"].split(",") if name.strip()]
        if mode == "kafka" and len(fields) not in {0, len(_KAFKA)}:
            wrong["primary.key.fields"] = (
                "are three with primary.key.mode=kafka, for topic, partition and offset; or none"
            )
        if not read["batch.size"].isdigit() or int(read["batch.size"]) < 1:
            wrong["batch.size"] = "is a number above 0"
        try:
            if _backend(read["connection.url"]) not in DIALECTS:
                wrong["connection.url"] = f"names {_backend(read['connection.url'])}; served are {', '.join(DIALECTS)}"
        except (ArgumentError, ValueError):
            wrong["connection.url"] = (
                "is no URL of a database; such as postgresql+psycopg://user@host/name or sqlite:///FILE"
            )
        return wrong

    async def start(self) -> None:
        try:
            self._engine = create_engine(self._url, pool_pre_ping=True)
            self._dialect = self._engine.dialect.name
            self._tables = Tables(self._engine, self._mode, evolve=self._evolve)
            await asyncio.to_thread(self._try)
        except (ImportError, NoSuchModuleError) as problem:
            raise ConfigInvalid({"connection.url": f"its driver is not installed: {problem}"}) from None
        except OperationalError as problem:
            said = str(getattr(problem.orig, "sqlstate", None) or problem)
            if said.startswith(_REFUSED_STATES) or any(phrase in said for phrase in _REFUSED_WORDS):
                raise ConfigInvalid(
                    {
                        "connection.username": f"{_said(problem)}; mend connection.username, connection.password or connection.url"
                    }
                ) from None
            raise Retriable(f"the database cannot be reached: {_said(problem)}") from None

    def _try(self) -> None:
        assert self._engine is not None
        self._engine.connect().close()

    async def write(self, batch: Sequence[SinkRecord]) -> None:
        """Write all records, a transaction for each `batch.size` rows."""
        for start in range(0, len(batch), self._batch):
            self._job = asyncio.ensure_future(asyncio.to_thread(self._write, batch[start : start + self._batch], start))
            await asyncio.shield(self._job)  # a thread cannot be cancelled: `stop` ends its statement

    def _write(self, records: Sequence[SinkRecord], start: int) -> None:
        assert self._tables is not None
        rows: list[tuple[int, Row]] = []
        refused: RecordRefused | None = None
        for index, record in enumerate(records, start):
            try:
                row = self.row(record)
            except _BAD_VALUE as problem:
                refused = RecordRefused(index, f"{type(problem).__name__}: {problem}")
                break
            if row is not None:
                rows.append((index, row))
        try:
            self._tables.write([row for _, row in rows])
        except (SQLAlchemyError, *_BAD_VALUE) as problem:
            self._judge(problem)
            self._one_by_one(rows)
        if refused is not None:
            raise refused

    def _one_by_one(self, rows: Sequence[tuple[int, Row]]) -> None:
        """Find the row that the database refuses; write those before it."""
        assert self._tables is not None
        self._tables.forget()
        for index, row in rows:
            try:
                self._tables.write([row])
            except (SQLAlchemyError, *_BAD_VALUE) as problem:
                self._judge(problem)
                raise RecordRefused(index, _said(problem)) from None

    def _judge(self, problem: Exception) -> None:
        """Raise failures that no record causes: temporary ones, an unfit table, a missing right."""
        if isinstance(problem, ConfigInvalid):
            raise problem
        state = str(getattr(getattr(problem, "orig", None), "sqlstate", None) or "")
        away = isinstance(problem, DBAPIError) and (
            problem.connection_invalidated or isinstance(problem, InterfaceError)
        )
        if away or state[:2] in _PASSING or (isinstance(problem, OperationalError) and not state):
            assert self._tables is not None
            self._tables.forget()
            raise Retriable(f"the database cannot be reached: {_said(problem)}") from None
        if state == _FORBIDDEN:
            raise ConfigInvalid({"connection.username": f"{_said(problem)}; grant it, or name another user"}) from None

    def row(self, record: SinkRecord) -> Row | None:
        """Return the row of a record; None for none.

        Raises:
            ValueError, TypeError, KeyError, OverflowError, RecursionError: it cannot be a row.
        """
        schema, value = record.value_schema, record.value
        if value is None and "${source." in self._format:
            return None  # only the preceding delete has the table's name
        table = self._table_of(record)
        if value is not None and is_envelope(schema, value):
            operation = value["op"]
            if operation in {"t", "m"}:
                return None
            which = "before" if operation == "d" else "after"
            schema, value = part_schema(schema, which), value[which]
            if operation == "d":
                value = None
        if value is None:
            if not self._deletes:
                return None
            key, kinds = self._key(table, record, None, None)
            return Row(table=table, key=key, values=None, kinds=kinds)
        if not isinstance(value, Mapping):
            raise TypeError(f"a row is made of a struct or a map, not of {type(value).__name__}")
        key, kinds = self._key(table, record, schema, value)
        values = {}
        partial = False
        for name, content in value.items():
            if name in key:
                continue
            if content in self._unavailable:
                partial = True
                continue
            inner = part_schema(schema, name)
            kinds[name] = column_type(inner, content, self._dialect)
            values[name] = self._value(table, name, inner, content)
        return Row(table=table, key=key, values=values, kinds=kinds, partial=partial)

    def _table_of(self, record: SinkRecord) -> str:
        name = self._format.replace("${topic}", record.topic.replace(".", "_"))
        if "${source." in name:
            source = record.value.get("source") if isinstance(record.value, Mapping) else None
            if not isinstance(source, Mapping):
                raise ValueError(f"collection.name.format={self._format} needs an envelope with its source")
            for part, text in source.items():
                name = name.replace(f"${{source.{part}}}", str(text))
        return name

    def _value(self, table: str, column: str, schema: Schema | None, value: Any) -> Any:
        try:
            return column_value(schema, value, self._dialect)
        except (ValueError, TypeError, KeyError, ArithmeticError) as problem:
            raise ValueError(f"table {table}, column {column}: {value!r:.80} cannot be stored: {problem}") from None

    def _key(
        self, table: str, record: SinkRecord, schema: Schema | None, value: Any
    ) -> tuple[dict[str, Any], dict[str, Kind]]:
        if self._key_mode == "none":
            return {}, {}
        if self._key_mode == "kafka":
            names = self._key_fields or _KAFKA
            position = dict(zip(names, (record.topic, record.partition, record.offset), strict=True))
            return position, {name: column_type(None, part, self._dialect) for name, part in position.items()}
        if self._key_mode == "record_key":
            schema, value = record.key_schema, record.key
            if value is not None and not isinstance(value, Mapping):
                if len(self._key_fields) != 1:
                    raise ValueError("the key is one value: name its column in primary.key.fields")
                name = self._key_fields[0]
                return {name: self._value(table, name, schema, value)}, {
                    name: column_type(schema, value, self._dialect)
                }
        if not isinstance(value, Mapping):
            raise ValueError(
                f"primary.key.mode={self._key_mode}: the record has no {self._key_mode.removeprefix('record_')}"
            )
        names = self._key_fields or list(value)
        missing = [name for name in names if value.get(name) is None]
        if missing:
            raise ValueError(f"the key's field {missing[0]} is missing or null")
        key = {name: self._value(table, name, part_schema(schema, name), value[name]) for name in names}
        return key, {name: column_type(part_schema(schema, name), value[name], self._dialect) for name in names}

    async def stop(self) -> None:
        """Disconnect; ends a current write before another sink may start."""
        job, self._job = self._job, None
        if job is not None and self._tables is not None:
            for _ in range(_INTERRUPTS):
                if job.done():
                    break
                with contextlib.suppress(Exception):  # the connection may be closing, which ends the thread
                    await asyncio.to_thread(self._tables.interrupt)
                await asyncio.wait([job], timeout=_INTERRUPT_EVERY_S)
            if job.done() and not job.cancelled():
                job.exception()  # retrieved, so that asyncio does not log it: its waiter is gone or has it, too
        if self._engine is not None:
            await asyncio.to_thread(self._engine.dispose)
            self._engine = None


def _read(config: Config) -> dict[str, str]:
    given = {
        "connection.username": config.get("connection.user"),
        "primary.key.mode": config.get("pk.mode"),
        "primary.key.fields": config.get("pk.fields"),
        "collection.name.format": config.get("table.name.format"),
        "schema.evolution": "basic" if "true" in {config.get("auto.create"), config.get("auto.evolve")} else None,
    }
    settings = {}
    for setting in JdbcSink.settings:
        text = config.get(setting.name, given.get(setting.name))
        settings[setting.name] = (setting.default or "") if text is None else text.strip()
    settings["connection.url"] = _url(settings)
    return settings


def _url(read: Mapping[str, str]) -> str:
    text = read["connection.url"].removeprefix("jdbc:")
    if text.startswith("sqlite:") and not text.startswith("sqlite://"):
        return f"sqlite:///{text.removeprefix('sqlite:')}"
    if text.startswith(("postgresql://", "postgres://")):
        text = f"postgresql+psycopg://{text.partition('://')[2]}"
    user, password = read.get("connection.username"), read.get("connection.password")
    try:
        url = make_url(text)
    except ArgumentError:
        return text
    if user and not url.username:
        url = url.set(username=user, password=password or None)
    return url.render_as_string(hide_password=False)


def _backend(url: str) -> str:
    return make_url(url).get_backend_name()


def _said(problem: Exception) -> str:
    """Return the database's or driver's message in one line, without the statement."""
    return " ".join(str(getattr(problem, "orig", None) or problem).split())[:500]
