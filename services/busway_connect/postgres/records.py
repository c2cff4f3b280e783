"""Table changes as records: Debezium's keys, envelopes, schemas and headers.

Here: `Layout`, made for each version of a table. Times are passed in as nanoseconds.
Not here: a change's place in the log (`stream`), IO.
"""

import base64
import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from busway_connect.postgres.catalog import Column, Table, TableId, Types
from busway_connect.postgres.cells import (
    Cell,
    cell_of,
    column_schema,
    masked,
    masked_length,
    require_no_key,
    require_own_names,
)
from busway_connect.postgres.columns import NO_PLACEHOLDER, codec_for
from busway_connect.postgres.pgoutput import UNCHANGED, Row
from busway_connect.postgres.settings import Settings
from busway_connect.postgres.values import NotANumber
from busway_connect.schema import Field, Schema

logger = logging.getLogger("busway.connect.postgres")
CONNECTOR: Final = "postgresql"
_INT64: Final = Schema(type="int64")
_STRING: Final = Schema(type="string")
_OPTIONAL_INT64: Final = Schema(type="int64", optional=True)
_OPTIONAL_STRING: Final = Schema(type="string", optional=True)
_NOT_IN_TOPIC: Final = re.compile(r"[^A-Za-z0-9._\-]")
_SNAPSHOT: Final = Schema(
    type="string",
    optional=True,
    name="io.debezium.data.Enum",
    version=1,
    parameters=(("allowed", "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"),),
    default="false",
    has_default=True,
)


def _fields(**schemas: Schema) -> tuple[Field, ...]:
    return tuple(Field(name=name, schema=schema) for name, schema in schemas.items())


SOURCE: Final = Schema(
    type="struct",
    name="io.debezium.connector.postgresql.Source",
    version=1,
    fields=_fields(
        version=_STRING,
        connector=_STRING,
        name=_STRING,
        ts_ms=_INT64,
        snapshot=_SNAPSHOT,
        db=_STRING,
        sequence=_OPTIONAL_STRING,
        ts_us=_OPTIONAL_INT64,
        ts_ns=_OPTIONAL_INT64,
        schema=_STRING,
        table=_STRING,
        txId=_OPTIONAL_INT64,
        lsn=_OPTIONAL_INT64,
        xmin=_OPTIONAL_INT64,
        origin=_OPTIONAL_STRING,
        origin_lsn=_OPTIONAL_INT64,
    ),
)
_TRANSACTION: Final = Schema(
    type="struct",
    optional=True,
    name="event.block",
    version=1,
    fields=_fields(id=_STRING, total_order=_INT64, data_collection_order=_INT64),
)
HEARTBEAT_KEY: Final = Schema(
    type="struct", name="io.debezium.connector.common.ServerNameKey", version=1, fields=_fields(serverName=_STRING)
)
HEARTBEAT: Final = Schema(
    type="struct", name="io.debezium.connector.common.Heartbeat", version=1, fields=_fields(ts_ms=_INT64)
)


class Unreadable(Exception):
    """A value has no form in a record; the text has the column and a remedy."""


class StaleType(Exception):
    """An enum's value is not among its labels: added or renamed since."""

    def __init__(self, label: str) -> None:
        super().__init__(f"{label!r} is no label of its enum")
        self.label = label


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Parts of `source` beyond the table.

    Attributes:
        at_us: of the transaction's commit, or the snapshot.
        snapshot: `false`, `true`, `first`, `last`, …
        commit_lsn: end of the previous transaction, if any.
        origin, origin_lsn: of a transaction replicated from another server.
    """

    at_us: int
    snapshot: str
    lsn: int
    xid: int
    commit_lsn: int | None
    origin: str | None = None
    origin_lsn: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A record of a change; `value` None is a tombstone."""

    key: dict[str, Any] | None
    value: dict[str, Any] | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Layout:
    """A version of a table, and the records of its rows.

    Args:
        table: with columns in the order of rows.
        version: of the connector, for `source`.
        former_labels: of enums, removed from the catalogue; these do not mean stale types.
    """

    def __init__(
        self, table: Table, types: Types, settings: Settings, version: str, former_labels: Collection[str] = ()
    ) -> None:
        self.id = table.id
        self.replica_identity = table.replica_identity
        name = _NOT_IN_TOPIC.sub("_", f"{settings.prefix}.{table.id}")
        self.topic = name
        self._settings = settings
        self._version = version
        self._cells: list[Cell] = []
        self._warned: set[str] = set()
        self._labels: list[tuple[int, frozenset[str]]] = []
        self._former_labels = former_labels
        key = settings.key_of(table.id) or table.key
        fields: dict[str, Field] = {}
        key_fields: dict[str, Field] = {}
        self.left_out: list[str] = []
        self.unmasked: list[str] = []
        """Columns whose mask is not applied, as they are not text."""
        for index, column in enumerate(table.columns):
            if not settings.captures_column(table.id, column.name):
                continue
            codec = codec_for(types, column.type_oid, column.type_modifier, settings)
            if codec is None:
                self.left_out.append(column.name)
                continue
            schema = column_schema(column, codec)
            cell = cell_of(index, column, codec, schema, settings.field_name(column.name))
            key_fields[column.name] = Field(name=cell.name, schema=schema)
            mask = settings.mask_of(table.id, column.name)
            if mask is not None:
                length = masked_length(types, column, codec, mask)
                schema = replace(schema, parameters=(*schema.parameters, *mask.parameters(length)))
                if length is None:
                    self.unmasked.append(column.name)
                else:
                    require_no_key(table.id, column.name, key, mask)
                    cell = masked(cell, mask, length)
            fields[column.name] = Field(name=cell.name, schema=schema)
            self._cells.append(cell)
            if codec.labels:
                self._labels.append((index, frozenset(codec.labels)))
        self.columns = frozenset(fields)
        self.key = tuple(name for name in key if name in fields)
        self._key_fields = tuple(fields[name].name for name in self.key)
        self.key_schema = None
        if self.key:
            members = tuple(key_fields[name] for name in self.key)
            self.key_schema = Schema(type="struct", name=settings.schema_name(f"{name}.Key"), fields=members)
        require_own_names(table.id, fields)
        row = Schema(
            type="struct",
            name=settings.schema_name(f"{name}.Value"),
            optional=True,
            fields=tuple(fields.values()),
        )
        self.schema = Schema(
            type="struct",
            name=settings.schema_name(f"{name}.Envelope"),
            version=2,
            fields=_fields(
                before=row,
                after=row,
                source=SOURCE,
                transaction=_TRANSACTION,
                op=_STRING,
                ts_ms=_OPTIONAL_INT64,
                ts_us=_OPTIONAL_INT64,
                ts_ns=_OPTIONAL_INT64,
            ),
        )

    def row(self, cells: Row, old: Row | None = None) -> dict[str, Any]:
        """Return a row's values; those missing in the log come from the old row, if present.

        Raises:
            StaleType: an unknown enum label.
            Unreadable: a value has no form in the schema.
        """
        for index, labels in self._labels:
            cell = cells[index]
            if isinstance(cell, str) and cell not in labels and cell not in self._former_labels:
                raise StaleType(cell)
        values: dict[str, Any] = {}
        for column in self._cells:
            cell = cells[column.index]
            if cell is UNCHANGED and old is not None and old[column.index] is not None:
                cell = old[column.index]
            if cell is None:
                values[column.name] = column.nothing
            elif isinstance(cell, str):
                values[column.name] = self._read(column, cell)
            elif column.unchanged is NO_PLACEHOLDER:
                values[column.name] = self._without(
                    column,
                    f"an UPDATE left the value as it was, the log does not hold it, and its type has no placeholder; ALTER TABLE"
                    f" {self.id} REPLICA IDENTITY FULL puts it into the log",
                )
            else:
                values[column.name] = column.unchanged
        return values

    def _read(self, column: Cell, cell: str) -> Any:
        try:
            return column.read(cell)
        except NotANumber:
            return self._without(
                column, f"{cell} is no value of decimal.handling.mode=precise; set it to double or string"
            )
        except (ValueError, OverflowError) as problem:
            return self._without(column, str(problem))

    def _without(self, column: Cell, why: str) -> Any:
        """Return NULL for a value without form, with a warning, if allowed."""
        text = f"{self.id}.{column.name}: {why}"
        if not column.optional or self._settings.converting_failure_mode == "fail":
            raise Unreadable(text)
        if column.name not in self._warned:
            self._warned.add(column.name)
            logger.warning("null instead of a value: %s", text)
        return None

    def hides(self, columns: Collection[str]) -> bool:
        return any(self._settings.mask_of(self.id, column) is not None for column in columns)

    def key_of(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        return {name: row[name] for name in self._key_fields} if self.key else None

    def _envelope(
        self, op: str, before: dict[str, Any] | None, after: dict[str, Any] | None, origin: Origin, now_ns: int
    ) -> dict[str, Any]:
        commit = "null" if origin.commit_lsn is None else f'"{origin.commit_lsn}"'
        source = {
            "version": self._version,
            "connector": CONNECTOR,
            "name": self._settings.prefix,
            "ts_ms": origin.at_us // 1000,
            "snapshot": origin.snapshot,
            "db": self._settings.database,
            "sequence": f'[{commit},"{origin.lsn}"]',
            "ts_us": origin.at_us,
            "ts_ns": origin.at_us * 1000,
            "schema": self.id.schema,
            "table": self.id.name,
            "txId": origin.xid,
            "lsn": origin.lsn,
            "xmin": None,
            "origin": origin.origin,
            "origin_lsn": origin.origin_lsn,
        }
        return {
            "before": before,
            "after": after,
            "source": source,
            "transaction": None,
            "op": op,
            "ts_ms": now_ns // 1_000_000,
            "ts_us": now_ns // 1000,
            "ts_ns": now_ns,
        }

    def created(self, new: Row, origin: Origin, now_ns: int, op: str = "c") -> list[Part]:
        """Return an INSERT's record, or with `op="r"` a snapshot row's."""
        row = self.row(new)
        return [Part(key=self.key_of(row), value=self._envelope(op, None, row, origin, now_ns))]

    def deleted(self, old: Row, origin: Origin, now_ns: int) -> list[Part]:
        row = self.row(old)
        key = self.key_of(row)
        parts = [Part(key=key, value=self._envelope("d", row, None, origin, now_ns))]
        if key is not None and self._settings.tombstones_on_delete:
            parts.append(Part(key=key, value=None))
        return parts

    def updated(self, old: Row | None, new: Row, origin: Origin, now_ns: int) -> list[Part]:
        """Return an UPDATE's records. A changed key gives a delete and a create, whose headers refer to each other."""
        after = self.row(new, old)
        before = self.row(old) if old is not None else None
        key = self.key_of(after)
        old_key = self.key_of(before) if before is not None else None
        if old is None or old_key is None or old_key == key or key is None:
            return [Part(key=key, value=self._envelope("u", before, after, origin, now_ns))]
        forward = (("__debezium.newkey", _header(key)),)
        back = (("__debezium.oldkey", _header(old_key)),)
        gone = [replace(record, headers=forward) for record in self.deleted(old, origin, now_ns)]
        return [*gone, Part(key=key, value=self._envelope("c", None, after, origin, now_ns), headers=back)]

    def truncated(self, origin: Origin, now_ns: int) -> list[Part]:
        return [Part(key=None, value=self._envelope("t", None, None, origin, now_ns))]


def _header(key: Mapping[str, Any]) -> bytes:
    """Format a struct like Connect's `SimpleHeaderConverter`."""
    return json.dumps(key, ensure_ascii=False, separators=(",", ":"), default=_base64).encode()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def context_headers(settings: Settings, run_id: str) -> tuple[tuple[str, bytes | None], ...]:
    if not settings.extended_headers:
        return ()
    values = {
        "connectorLogicalName": settings.prefix,
        "taskId": "0",
        "connectorName": CONNECTOR,
        "runId": run_id,
    }
    return tuple((f"__debezium.context.{name}", text.encode()) for name, text in values.items())


def layout_table(
    table: Table | None, id_: TableId, identity: str, columns: Sequence[tuple[str, int, int, bool]]
) -> Table:
    """Return a table's form in the log. Defaults, NULLs and key are the catalogue's (None: deleted there).

    Args:
        columns: (name, type, modifier, part of the replica identity), from the log.
    """
    known = {column.name: column for column in table.columns} if table is not None else {}
    merged = []
    for name, oid, modifier, _ in columns:
        now = known.get(name)
        merged.append(
            Column(
                name=name,
                type_oid=oid,
                type_modifier=modifier,
                optional=now.optional if now is not None else True,
                default=now.default if now is not None else None,
            )
        )
    return Table(id=id_, columns=tuple(merged), key=_key_then(table, identity, columns), replica_identity=identity)


def _key_then(table: Table | None, identity: str, columns: Sequence[tuple[str, int, int, bool]]) -> tuple[str, ...]:
    """Return the key at the log's time: the catalogue's, unless contradicted."""
    now = table.key if table is not None else ()
    marked = tuple(name for name, _, _, key in columns if key)
    if identity == "d" and marked:  # the primary key's columns; the catalogue has their order
        return now if set(now) == set(marked) else marked
    return now if {name for name, *_ in columns} >= set(now) else ()
