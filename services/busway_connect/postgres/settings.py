"""The connector's settings, by Debezium's names.

Here: defaults, parsing, checks, selection of tables and columns.
"""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from busway_connect.connector import ConfigInvalid, Setting
from busway_connect.patterns import LIST_CHARS_MAX, BadPattern, Pattern
from busway_connect.postgres.catalog import TableId
from busway_connect.postgres.masks import Mask, is_mask, mask_problems, read_masks
from busway_connect.postgres.names import MODES, adjusted

SNAPSHOT_MODES: Final = ("initial", "always", "initial_only", "no_data", "never", "when_needed")
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "plugin.name": ("pgoutput",),
    "publication.autocreate.mode": ("all_tables", "disabled", "filtered"),
    "snapshot.mode": SNAPSHOT_MODES,
    "decimal.handling.mode": ("precise", "string", "double"),
    "time.precision.mode": ("adaptive", "adaptive_time_microseconds", "connect"),
    "hstore.handling.mode": ("json", "map"),
    "interval.handling.mode": ("numeric", "string"),
    "binary.handling.mode": ("bytes", "base64", "base64-url-safe", "hex"),
    "event.converting.failure.handling.mode": ("warn", "fail"),
    "provide.transaction.metadata": ("false",),
    "schema.name.adjustment.mode": MODES,
    "field.name.adjustment.mode": MODES,
    "snapshot.isolation.mode": ("serializable", "repeatable_read"),
    "snapshot.locking.mode": ("none",),
}
"""Settings with fixed values; with a single one, others are unsupported."""
_FLAGS: Final = (
    "tombstones.on.delete", "slot.drop.on.stop", "include.unknown.datatypes", "extended.headers.enabled",
)  # fmt: skip
_NUMBERS: Final = {
    "database.port": (1, 65_535),
    "heartbeat.interval.ms": (0, 86_400_000),
    "snapshot.fetch.size": (1, 1_000_000),
    "max.batch.size": (1, 1_000_000),
    "max.queue.size": (1, 10_000_000),
    "max.queue.size.in.bytes": (0, 2**63 - 1),
    "status.update.interval.ms": (10, 3_600_000),
    "money.fraction.digits": (0, 18),
    "slot.max.retries": (0, 2**31 - 1),
    "slot.retry.delay.ms": (1, 86_400_000),
}
_LISTS: Final = (
    "schema.include.list", "schema.exclude.list", "table.include.list", "table.exclude.list",
    "column.include.list", "column.exclude.list",
)  # fmt: skip
_OPERATIONS: Final = frozenset({"c", "u", "d", "t", "none"})
_SLOT: Final = re.compile(r"[a-z0-9_]{1,63}")
_IN_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+")
_SSL: Final = ("sslrootcert", "sslcert", "sslkey", "sslpassword")


def _setting(
    name: str, doc: str, default: str | None = None, *, required: bool = False, type_: str = "STRING"
) -> Setting:
    return Setting(name=name, doc=doc, default=default, required=required, type=type_)


SETTINGS: Final = (
    _setting("database.hostname", "the server's host", required=True),
    _setting("database.port", "the server's port", "5432", type_="INT"),
    _setting("database.user", "a user with REPLICATION and SELECT", required=True),
    _setting("database.password", "the user's password", "", type_="PASSWORD"),
    _setting("database.dbname", "the database", required=True),
    _setting("database.sslmode", "disable, allow, prefer, require, verify-ca or verify-full", "prefer"),
    _setting("database.sslrootcert", "file of the certificates that the server's is checked with"),
    _setting("database.sslcert", "file of the client's certificate"),
    _setting("database.sslkey", "file of the client's key"),
    _setting("database.sslpassword", "password of that key", type_="PASSWORD"),
    _setting("topic.prefix", "first part of every topic's name, and the name of the offsets", required=True),
    _setting("plugin.name", "the output plugin: pgoutput", "pgoutput"),
    _setting("slot.name", "the replication slot; made at the first start", "debezium"),
    _setting("slot.drop.on.stop", "drop the slot when the connector stops", "false", type_="BOOLEAN"),
    _setting(
        "slot.max.retries",
        "how many times slot.retry.delay.ms a slot that another reads is waited for",
        "6",
        type_="INT",
    ),
    _setting("slot.retry.delay.ms", "how often the log says that the slot is waited for", "10000", type_="INT"),
    _setting("publication.name", "the publication", "dbz_publication"),
    _setting("publication.autocreate.mode", "all_tables, filtered or disabled", "all_tables"),
    _setting("snapshot.mode", f"one of {', '.join(SNAPSHOT_MODES)}", "initial"),
    _setting("snapshot.fetch.size", "rows that a batch of the snapshot holds", "10240", type_="INT"),
    _setting("schema.include.list", "regular expressions of schemas, with commas", type_="LIST"),
    _setting("schema.exclude.list", "regular expressions of schemas left out", type_="LIST"),
    _setting("table.include.list", "regular expressions of schema.table", type_="LIST"),
    _setting("table.exclude.list", "regular expressions of schema.table left out", type_="LIST"),
    _setting("column.include.list", "regular expressions of schema.table.column", type_="LIST"),
    _setting("column.exclude.list", "regular expressions of schema.table.column left out", type_="LIST"),
    _setting("message.key.columns", "schema.table:column,column;… where the key is not the primary key"),
    _setting("schema.name.adjustment.mode", "none, avro or avro_unicode: schema names that Avro takes", "none"),
    _setting("field.name.adjustment.mode", "none, avro or avro_unicode: field names that Avro takes", "none"),
    _setting("decimal.handling.mode", "precise, string or double", "precise"),
    _setting("time.precision.mode", "adaptive, adaptive_time_microseconds or connect", "adaptive"),
    _setting("interval.handling.mode", "numeric or string", "numeric"),
    _setting("hstore.handling.mode", "json or map", "json"),
    _setting("binary.handling.mode", "bytes, base64, base64-url-safe or hex", "bytes"),
    _setting("money.fraction.digits", "digits of money behind the point", "2", type_="INT"),
    _setting("include.unknown.datatypes", "hand over unknown types as bytes of their text", "false", type_="BOOLEAN"),
    _setting("unavailable.value.placeholder", "stands for an unchanged TOASTed value", "__debezium_unavailable_value"),
    _setting(
        "event.converting.failure.handling.mode",
        "what to do with a value that has no form in the record: warn (null, and a line in the log) or fail",
        "warn",
    ),
    _setting("tombstones.on.delete", "a tombstone follows a delete", "true", type_="BOOLEAN"),
    _setting("skipped.operations", "of c, u, d, t: operations left out; none for none", "t", type_="LIST"),
    _setting("extended.headers.enabled", "the headers __debezium.context.*", "true", type_="BOOLEAN"),
    _setting(
        "heartbeat.interval.ms",
        "how often an offset is stored while the captured tables are quiet, so that the server may drop its log; 0 for never",
        "10000",
        type_="INT",
    ),
    _setting("heartbeat.topics.prefix", "first part of the heartbeats' topic", "__debezium-heartbeat"),
    _setting("status.update.interval.ms", "interval of status updates to the server", "10000", type_="INT"),
    _setting("max.batch.size", "records that one read hands over", "2048", type_="INT"),
    _setting("max.queue.size", "records that wait to be read; then the server waits", "8192", type_="INT"),
    _setting(
        "max.queue.size.in.bytes",
        "bytes of their values that wait to be read, roughly; then the server waits; 0 for no bound (Debezium's default)",
        "67108864",
        type_="LONG",
    ),
    _setting("provide.transaction.metadata", "not served: false", "false", type_="BOOLEAN"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    host: str
    port: int
    user: str
    password: str
    database: str
    sslmode: str
    ssl_files: Mapping[str, str]
    prefix: str
    slot: str
    drop_slot_on_stop: bool
    slot_max_retries: int
    slot_retry_delay_ms: int
    publication: str
    publication_mode: str
    snapshot_mode: str
    snapshot_fetch_size: int
    schemas: "Choice"
    tables: "Choice"
    columns: "Choice"
    masks: tuple[Mask, ...]
    schema_names: str
    field_names: str
    key_columns: tuple[tuple[Pattern, tuple[str, ...]], ...]
    decimal_handling_mode: str
    time_precision_mode: str
    interval_handling_mode: str
    hstore_handling_mode: str
    binary_handling_mode: str
    money_fraction_digits: int
    include_unknown_datatypes: bool
    unavailable_value_placeholder: str
    converting_failure_mode: str
    tombstones_on_delete: bool
    skipped_operations: frozenset[str]
    extended_headers: bool
    heartbeat_interval_ms: int
    heartbeat_topics_prefix: str
    status_update_interval_ms: int
    batch_size: int
    queue_size: int
    queue_bytes: int

    def captures(self, table: TableId) -> bool:
        return self.schemas.takes(table.schema) and self.tables.takes(str(table))

    def captures_column(self, table: TableId, column: str) -> bool:
        return self.columns.takes(f"{table}.{column}")

    def mask_of(self, table: TableId, column: str) -> Mask | None:
        return next((mask for mask in self.masks if mask.takes(f"{table}.{column}")), None)

    def schema_name(self, name: str) -> str:
        return adjusted(name, self.schema_names, dots=True)

    def field_name(self, name: str) -> str:
        return adjusted(name, self.field_names, dots=False)

    def key_of(self, table: TableId) -> tuple[str, ...] | None:
        name = str(table)
        return next((columns for pattern, columns in self.key_columns if pattern.fullmatch(name)), None)

    def binary_encoder(self) -> Callable[[bytes], str]:
        encoders: dict[str, Callable[[bytes], str]] = {
            "base64": lambda data: base64.b64encode(data).decode(),
            "base64-url-safe": lambda data: base64.urlsafe_b64encode(data).decode(),
            "hex": bytes.hex,
        }
        return encoders[self.binary_handling_mode]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Included and excluded names, as anchored case-insensitive regular expressions; without any all are included."""

    include: tuple[Pattern, ...] = ()
    exclude: tuple[Pattern, ...] = ()

    def takes(self, name: str) -> bool:
        if self.include:
            return any(pattern.fullmatch(name) for pattern in self.include)
        return not any(pattern.fullmatch(name) for pattern in self.exclude)


def serves(name: str) -> bool:
    return name in _CHOICES or is_mask(name) or any(setting.name == name for setting in SETTINGS)


def problems(config: Mapping[str, str]) -> dict[str, str]:
    wrong = {
        setting.name: f"is missing: {setting.doc}"
        for setting in SETTINGS
        if setting.required and not config.get(setting.name)
    }
    for name, allowed in _CHOICES.items():
        value = config.get(name)
        if value is not None and value.lower() not in allowed:
            wrong[name] = f"{value!r} is not supported; what is: {', '.join(allowed)}"
    for name in _FLAGS:
        if config.get(name, "true").lower() not in ("true", "false"):
            wrong[name] = f"{config[name]!r} is neither true nor false"
    for name, (least, most) in _NUMBERS.items():
        value = config.get(name)
        if value is not None and not (value.isascii() and value.isdigit() and least <= int(value) <= most):
            wrong[name] = f"{value!r} is no number from {least} to {most}"
    wrong |= _bad_patterns(config) | mask_problems(config, _patterns)
    for first in ("schema", "table", "column"):
        if config.get(f"{first}.include.list") and config.get(f"{first}.exclude.list"):
            wrong[f"{first}.exclude.list"] = f"cannot stand beside {first}.include.list; keep one of them"
    for name in ("topic.prefix", "heartbeat.topics.prefix"):
        if config.get(name) and not _IN_TOPIC.fullmatch(config[name]):
            wrong[name] = f"{config[name]!r} is no beginning of a topic's name: letters, digits, dot, hyphen and _"
    if not _SLOT.fullmatch(config.get("slot.name", "debezium")):
        wrong["slot.name"] = (
            f"{config['slot.name']!r} is no name of a slot: lower-case letters, digits and _, at most 63"
        )
    skipped = _words(config.get("skipped.operations", "t"))
    if not skipped <= _OPERATIONS:
        wrong["skipped.operations"] = f"{', '.join(sorted(skipped - _OPERATIONS))}: an operation is c, u, d or t"
    return wrong


def _bad_patterns(config: Mapping[str, str]) -> dict[str, str]:
    wrong = {}
    for name in _LISTS:
        try:
            _patterns(config.get(name))
        except BadPattern as problem:
            wrong[name] = f"{config[name]!r} is no list of regular expressions: {problem}"
    try:
        _key_columns(config.get("message.key.columns"))
    except ValueError as problem:
        wrong["message.key.columns"] = (
            f"{config['message.key.columns']!r}: {problem}; it is schema.table:column,column;…"
        )
    return wrong


def parse(config: Mapping[str, str]) -> Settings:
    """Parse a config; raises `ConfigInvalid` with each invalid setting."""
    wrong = problems(config)
    if wrong:
        raise ConfigInvalid(wrong)
    value = {setting.name: setting.default or "" for setting in SETTINGS} | {
        name: text for name, text in config.items() if text
    }

    def choice(name: str) -> Choice:
        include, exclude = value[f"{name}.include.list"], value[f"{name}.exclude.list"]
        return Choice(include=_patterns(include), exclude=_patterns(exclude))

    def flag(name: str) -> bool:
        return value[name].lower() == "true"

    return Settings(
        host=value["database.hostname"],
        port=int(value["database.port"]),
        user=value["database.user"],
        password=value["database.password"],
        database=value["database.dbname"],
        sslmode=value["database.sslmode"],
        ssl_files={name: text for name in _SSL if (text := value[f"database.{name}"])},
        prefix=value["topic.prefix"],
        slot=value["slot.name"],
        drop_slot_on_stop=flag("slot.drop.on.stop"),
        slot_max_retries=int(value["slot.max.retries"]),
        slot_retry_delay_ms=int(value["slot.retry.delay.ms"]),
        publication=value["publication.name"],
        publication_mode=value["publication.autocreate.mode"].lower(),
        snapshot_mode=value["snapshot.mode"].lower(),
        snapshot_fetch_size=int(value["snapshot.fetch.size"]),
        schemas=choice("schema"),
        tables=choice("table"),
        columns=choice("column"),
        masks=read_masks(config, _patterns),
        schema_names=value["schema.name.adjustment.mode"].lower(),
        field_names=value["field.name.adjustment.mode"].lower(),
        key_columns=_key_columns(value["message.key.columns"]),
        decimal_handling_mode=value["decimal.handling.mode"].lower(),
        time_precision_mode=value["time.precision.mode"].lower(),
        interval_handling_mode=value["interval.handling.mode"].lower(),
        hstore_handling_mode=value["hstore.handling.mode"].lower(),
        binary_handling_mode=value["binary.handling.mode"].lower(),
        money_fraction_digits=int(value["money.fraction.digits"]),
        include_unknown_datatypes=flag("include.unknown.datatypes"),
        unavailable_value_placeholder=value["unavailable.value.placeholder"],
        converting_failure_mode=value["event.converting.failure.handling.mode"].lower(),
        tombstones_on_delete=flag("tombstones.on.delete"),
        skipped_operations=frozenset(_words(value["skipped.operations"]) - {"none"}),
        extended_headers=flag("extended.headers.enabled"),
        heartbeat_interval_ms=int(value["heartbeat.interval.ms"]),
        heartbeat_topics_prefix=value["heartbeat.topics.prefix"],
        status_update_interval_ms=int(value["status.update.interval.ms"]),
        batch_size=int(value["max.batch.size"]),
        queue_size=int(value["max.queue.size"]),
        queue_bytes=int(value["max.queue.size.in.bytes"]),
    )


def _words(text: str) -> set[str]:
    return {word.strip().lower() for word in text.split(",") if word.strip()}


def _patterns(text: str | None) -> tuple[Pattern, ...]:
    if len(text or "") > LIST_CHARS_MAX:
        raise BadPattern(f"the list has {len(text or '')} characters, {LIST_CHARS_MAX} are the most")
    # Unescaped commas separate, like in Debezium's lists.
    parts = re.split(r"(?<!\\),", text or "")
    return tuple(Pattern(part.strip().replace("\\,", ","), ignore_case=True) for part in parts if part.strip())


def _key_columns(text: str | None) -> tuple[tuple[Pattern, tuple[str, ...]], ...]:
    columns_by_table = []
    for part in (text or "").split(";"):
        if not part.strip():
            continue
        table, separator, columns = part.rpartition(":")
        names = tuple(column.strip() for column in columns.split(",") if column.strip())
        if not separator or not names:
            raise ValueError(f"{part.strip()!r} names no columns")
        columns_by_table.append((Pattern(table.strip(), ignore_case=True), names))
    return tuple(columns_by_table)
