"""Column types → Connect schemas and values, like Debezium.

Here: `Codec`, and finding a column's. Built-in types are found by their fixed oid, extensions' types by name.
Not here: parsing text (`values`, `geometry`), defaults (`defaults`).
"""

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from busway_connect.postgres import geometry, values
from busway_connect.postgres.catalog import TypeInfo, Types
from busway_connect.postgres.settings import Settings
from busway_connect.schema import Field, Schema

NO_PLACEHOLDER: Final = object()
"""In `Codec.unchanged`: no value can stand for a missing one."""
UNLIMITED: Final = 2**31 - 1
"""Length of a bit string without limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """Conversion of a column.

    Attributes:
        fallback: for a NOT NULL column missing in the log's old row.
        unchanged: for a TOASTed value missing in the log.
        always_optional: optional in Debezium even for a NOT NULL column.
        default_type: how defaults are read (`defaults`); None for no defaults.
        labels: of an enum, to detect later ones.
    """

    schema: Schema
    read: Callable[[str], Any]
    fallback: Any = None
    unchanged: Any = NO_PLACEHOLDER
    always_optional: bool = False
    default_type: str | None = None
    labels: tuple[str, ...] = ()


_DATA: Final = "io.debezium.data."
_TIME: Final = "io.debezium.time."
_CONNECT: Final = "org.apache.kafka.connect.data."
_VARIABLE_SCALE: Final = Schema(
    type="struct",
    name=_DATA + "VariableScaleDecimal",
    version=1,
    doc="Variable scaled decimal",
    fields=(Field(name="scale", schema=Schema(type="int32")), Field(name="value", schema=Schema(type="bytes"))),
)
_STRINGS: Final = frozenset({"text", "varchar", "bpchar", "char", "name", "citext", "inet", "cidr", "macaddr", "macaddr8"}) | {
    "int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"
}  # fmt: skip
_NAMED: Final = {
    "uuid": "Uuid", "json": "Json", "jsonb": "Json", "xml": "Xml", "tsvector": "Tsvector", "ltree": "Ltree",
}  # fmt: skip
_DEFAULTED: Final = frozenset({"text", "varchar", "bpchar", "uuid", "json", "jsonb", "xml"})
_INTEGERS: Final = {"int2": "int16", "int4": "int32", "int8": "int64", "oid": "int64"}
_FLOATS: Final = {"float4": "float32", "float8": "float64"}
_NO_ARRAY: Final = frozenset({"money", "name", "interval", "varbit", "xml", "point"})
"""Types whose arrays Debezium omits."""


def codec_for(types: Types, type_oid: int, modifier: int, settings: Settings) -> Codec | None:
    info, modifier = types.resolved(type_oid, modifier)
    direct = info.oid == type_oid
    codec = _array(types, info, modifier, settings) if info.element else _or_unknown(info, modifier, settings)
    if codec is not None and not direct:
        codec = replace(codec, default_type=None)  # a domain's default is read by the domain's name
    return codec


def text_length(types: Types, type_oid: int, modifier: int) -> int | None:
    """Return a text column's limit in characters, `UNLIMITED` for none; None for other types (Debezium: JDBC's CHAR
    and VARCHAR).
    """
    info, modifier = types.resolved(type_oid, modifier)
    if info.kind == "e" or info.name in ("text", "name"):
        return UNLIMITED
    if info.name == "char":
        return 1
    if info.name in ("varchar", "bpchar"):
        return UNLIMITED if modifier == -1 else modifier - 4
    return None


def _or_unknown(info: TypeInfo, modifier: int, settings: Settings) -> Codec | None:
    codec = None if info.kind == "d" else _scalar(info, modifier, settings)
    if codec is None and settings.include_unknown_datatypes:
        return _binary(settings, str.encode)
    return codec


def _scalar(info: TypeInfo, modifier: int, settings: Settings) -> Codec | None:
    name = info.name
    if info.kind == "e":
        return _text(settings, _DATA + "Enum", default="enum", labels=info.labels)
    if name in _STRINGS:
        return _text(settings, None, default=name if name in _DEFAULTED else None)
    if name in _NAMED:
        return _text(settings, _DATA + _NAMED[name], default=name if name in _DEFAULTED else None)
    if name in _INTEGERS:
        schema = Schema(type=_INTEGERS[name])  # type: ignore[arg-type]
        return Codec(schema=schema, read=int, fallback=0, default_type=None if name == "oid" else name)
    if name in _FLOATS:
        return Codec(schema=Schema(type=_FLOATS[name]), read=float, fallback=0.0, default_type=name)  # type: ignore[arg-type]
    if name == "bool":
        return Codec(schema=Schema(type="boolean"), read=values.boolean, fallback=False, default_type=name)
    if name == "bytea":
        return _binary(settings, values.binary)
    if name in ("numeric", "money"):
        return _decimal(name, modifier, settings)
    if name in ("bit", "varbit"):
        return _bits(name, modifier, settings)
    if name == "hstore":
        return _hstore(settings)
    if name in geometry.READERS:
        schema, read, nothing = geometry.READERS[name]
        return Codec(schema=schema, read=read, fallback=read(nothing), always_optional=name != "point")
    return _temporal(name, modifier, settings)


def _text(settings: Settings, name: str | None, *, default: str | None, labels: tuple[str, ...] = ()) -> Codec:
    parameters = (("allowed", ",".join(labels)),) if labels else ()
    schema = Schema(type="string", name=name, version=1 if name else None, parameters=parameters)
    return Codec(
        schema=schema,
        read=str,
        fallback="",
        unchanged=settings.unavailable_value_placeholder,
        default_type=default,
        labels=labels,
    )


def _binary(settings: Settings, read: Callable[[str], bytes]) -> Codec:
    placeholder = settings.unavailable_value_placeholder
    mode = settings.binary_handling_mode
    if mode == "bytes":
        return Codec(schema=Schema(type="bytes"), read=read, fallback=b"", unchanged=placeholder.encode())
    encode = settings.binary_encoder()
    return Codec(schema=Schema(type="string"), read=lambda text: encode(read(text)), fallback="", unchanged=placeholder)


def _decimal(name: str, modifier: int, settings: Settings) -> Codec:
    mode = settings.decimal_handling_mode
    if name == "money":
        return _money(settings)
    if mode == "double":
        return Codec(schema=Schema(type="float64"), read=float, fallback=0.0, default_type=name)
    precision = (modifier - 4) >> 16 & 0xFFFF
    scale = ((modifier - 4 & 0x7FF) ^ 1024) - 1024
    if scale < 0:  # rounded to tens, hundreds …: always a whole number
        precision, scale = precision - scale, 0
    if mode == "string":
        read = values.decimal_text_of(None if modifier == -1 else scale)
        return Codec(schema=Schema(type="string"), read=read, fallback=read("0"), default_type=name)
    if modifier == -1:
        nothing = values.variable_scale_decimal("0")
        return Codec(schema=_VARIABLE_SCALE, read=values.variable_scale_decimal, fallback=nothing)
    schema = _decimal_schema(scale, ("connect.decimal.precision", str(precision)))
    return Codec(schema=schema, read=values.decimal_of(scale), fallback=b"\0", default_type=name)


def _decimal_schema(scale: int, *more: tuple[str, str]) -> Schema:
    return Schema(type="bytes", name=_CONNECT + "Decimal", version=1, parameters=(("scale", str(scale)), *more))


def _money(settings: Settings) -> Codec:
    digits, mode = settings.money_fraction_digits, settings.decimal_handling_mode
    if mode == "double":
        return Codec(
            schema=Schema(type="float64"),
            read=lambda text: values.money_units(text, values.MONEY_DIGITS) / 10**values.MONEY_DIGITS,
            fallback=0.0,
        )
    if mode == "string":
        return Codec(
            schema=Schema(type="string"), read=lambda text: _shifted(text, digits), fallback=_shifted("0", digits)
        )
    return Codec(
        schema=_decimal_schema(digits),
        read=lambda text: values.twos_complement(values.money_units(text, digits)),
        fallback=b"\0",
    )


def _shifted(text: str, digits: int) -> str:
    amount = values.money_units(text, digits)
    number = str(abs(amount)).rjust(digits + 1, "0")
    ending = f".{number[-digits:]}" if digits else ""
    return f"{'-' if amount < 0 else ''}{number[: len(number) - digits]}{ending}"


def _bits(name: str, modifier: int, settings: Settings) -> Codec:
    length = UNLIMITED if modifier == -1 else modifier
    if length == 1:
        return Codec(schema=Schema(type="boolean"), read=lambda text: text == "1", fallback=False, default_type=name)
    schema = Schema(type="bytes", name=_DATA + "Bits", version=1, parameters=(("length", str(length)),))
    placeholder = settings.unavailable_value_placeholder.encode()
    return Codec(schema=schema, read=values.bits, fallback=b"", unchanged=placeholder, default_type=name)


def _hstore(settings: Settings) -> Codec:
    placeholder = settings.unavailable_value_placeholder
    if settings.hstore_handling_mode == "map":
        optional = Schema(type="string", optional=True)
        schema = Schema(type="map", key_schema=Schema(type="string"), value_schema=optional)
        return Codec(schema=schema, read=values.hstore_map, fallback={}, unchanged={placeholder: placeholder})
    unchanged = values.hstore_json(f'"{placeholder}"=>"{placeholder}"')
    schema = Schema(type="string", name=_DATA + "Json", version=1)
    return Codec(schema=schema, read=values.hstore_json, fallback="{}", unchanged=unchanged)


def _temporal(name: str, modifier: int, settings: Settings) -> Codec | None:
    precision = 6 if modifier == -1 else modifier
    connect = settings.time_precision_mode == "connect"
    if name == "date":
        kind = _CONNECT + "Date" if connect else _TIME + "Date"
        return _number("int32", kind, values.date, name)
    if name == "time":
        if connect:
            return _number("int32", _CONNECT + "Time", values.time_ms, name)
        if precision <= 3 and settings.time_precision_mode == "adaptive":
            return _number("int32", _TIME + "Time", values.time_ms, name)
        return _number("int64", _TIME + "MicroTime", values.time_us, name)
    if name == "timestamp":
        if connect:
            return _number("int64", _CONNECT + "Timestamp", values.timestamp_ms, name)
        if precision <= 3:
            return _number("int64", _TIME + "Timestamp", values.timestamp_ms, name)
        return _number("int64", _TIME + "MicroTimestamp", values.timestamp_us, name)
    if name == "interval":
        if settings.interval_handling_mode == "string":
            schema = Schema(type="string", name=_TIME + "Interval", version=1)
            return Codec(schema=schema, read=values.interval_iso, fallback=values.interval_iso(""), default_type=name)
        return _number("int64", _TIME + "MicroDuration", values.interval_us, name)
    if name == "timestamptz":
        schema = Schema(type="string", name=_TIME + "ZonedTimestamp", version=1)
        read = values.zoned_timestamp_of(precision)
        return Codec(schema=schema, read=read, fallback="1970-01-01T00:00:00Z", default_type=name)
    if name == "timetz":
        schema = Schema(type="string", name=_TIME + "ZonedTime", version=1)
        return Codec(schema=schema, read=values.zoned_time, fallback="00:00:00Z")
    return None


def _number(kind: Any, name: str, read: Callable[[str], int], default: str) -> Codec:
    return Codec(schema=Schema(type=kind, name=name, version=1), read=read, fallback=0, default_type=default)


def _array(types: Types, info: TypeInfo, modifier: int, settings: Settings) -> Codec | None:
    direct = types[info.element]
    if direct.name in _NO_ARRAY:
        return None
    element = _or_unknown(direct, modifier, settings)
    if element is None:
        return None
    read_one = element.read

    def read(text: str) -> list[Any]:
        return [None if element is None else read_one(element) for element in values.array(text)]

    of = replace(element.schema, optional=True)
    return Codec(
        schema=Schema(type="array", value_schema=of),
        read=read,
        fallback=[],
        unchanged=_array_placeholder(direct, element, settings.unavailable_value_placeholder),
        labels=(),
    )


def _array_placeholder(info: TypeInfo, element: Codec, placeholder: str) -> Any:
    if info.name == "uuid":
        # Like Java's UUID.nameUUIDFromBytes: RFC 9562's version 3 without a name space.
        digest = hashlib.md5(placeholder.encode(), usedforsecurity=False).digest()
        return [str(uuid.UUID(bytes=digest, version=3))]
    if element.unchanged is not NO_PLACEHOLDER:
        return [element.unchanged]
    if info.name in ("int4", "int8", "date"):
        return list(placeholder.encode())
    return NO_PLACEHOLDER
