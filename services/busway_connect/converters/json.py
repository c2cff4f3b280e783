"""`org.apache.kafka.connect.json.JsonConverter`: JSON in an envelope with its schema, or without
(`schemas.enable=false`).

Here: values ↔ JSON, compiled once for each schema.
Not here: schemas ↔ JSON (`json_schema`).

Settings: `schemas.enable` (true), `decimal.format` (BASE64 or NUMERIC), `replace.null.with.default` (true).
"""

import base64
import binascii
import decimal
import json
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import msgspec

from busway_connect.connector import Setting
from busway_connect.converters.interface import BySchema, ConversionFailed, Converter
from busway_connect.converters.json_schema import schema_from_json, schema_to_json
from busway_connect.decimals import DECIMAL, decimal_from_bytes, decimal_to_bytes, scale_of
from busway_connect.schema import Schema

Convert = Callable[[Any], Any]
_INTEGERS: Final = {"int8": 2**7, "int16": 2**15, "int32": 2**31, "int64": 2**63}
_TOO_DEEP: Final = "the record or its schema is nested too deep"
_FLOAT: Final = struct.Struct(">f")
_ENCODER: Final = msgspec.json.Encoder()


class JsonConverter(Converter):
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(name="schemas.enable", doc="Whether the schema is around the value", default="true", type="BOOLEAN"),
        Setting(name="decimal.format", doc="BASE64 or NUMERIC", default="BASE64"),
        Setting(name="replace.null.with.default", doc="Whether a null is its field's default", default="true", type="BOOLEAN"),
    )  # fmt: skip
    fixed: ClassVar[Mapping[str, tuple[str, ...]]] = {"decimal.format": ("base64", "numeric")}

    def __init__(self, settings: Mapping[str, str], *, is_key: bool) -> None:
        super().__init__(settings, is_key=is_key)
        self._with_schemas = settings.get("schemas.enable", "true").strip().lower() != "false"
        self._numeric = settings.get("decimal.format", "BASE64").strip().upper() == "NUMERIC"
        self._defaults = settings.get("replace.null.with.default", "true").strip().lower() != "false"
        self._writers: BySchema[tuple[Convert, bytes]] = BySchema()
        self._read_schemas: dict[bytes, Schema | None] = {}

    async def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        try:
            return self._written(topic, schema, value)
        except RecursionError:
            raise ConversionFailed(_TOO_DEEP) from None

    def _written(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is None:
            if value is None:
                return None
            body = _encode(_plain_out(value))
            return b'{"schema":null,"payload":' + body + b"}" if self._with_schemas else body
        writer = self._writers.get(schema)
        if writer is None:
            head = b'{"schema":' + _encode(schema_to_json(schema, self._default_out)) + b',"payload":'
            writer = self._writers.put(schema, (self._out(schema, topic), head))
        convert, head = writer
        body = _encode(convert(value))
        return head + body + b"}" if self._with_schemas else body

    async def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        try:
            return self._read(data)
        except RecursionError:
            raise ConversionFailed(_TOO_DEEP) from None

    def _read(self, data: bytes) -> tuple[Schema | None, Any]:
        try:
            value = json.loads(data, parse_float=decimal.Decimal if self._numeric else None)
        except ValueError as problem:
            raise ConversionFailed(f"the record is not JSON: {problem}") from None
        if not self._with_schemas:
            return None, value
        if not isinstance(value, dict) or value.keys() != {"schema", "payload"}:
            raise ConversionFailed(
                'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional '
                "fields. If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter "
                "configuration."
            )
        if value["schema"] is None:
            return None, value["payload"]
        text = _encode(value["schema"])
        if text not in self._read_schemas:
            if len(self._read_schemas) >= 1000:
                self._read_schemas.clear()
            self._read_schemas[text] = schema_from_json(value["schema"], self._in)
        schema = self._read_schemas[text]
        assert schema is not None
        return schema, self._in(schema, value["payload"])

    # Out

    def _default_out(self, schema: Schema, value: Any) -> Any:
        return self._out(schema, "a default")(value)

    def _out(self, schema: Schema, where: str) -> Convert:
        inner = self._out_value(schema, where)
        default = inner(schema.default) if schema.has_default and schema.default is not None else None
        fills = self._defaults and default is not None

        def convert(value: Any) -> Any:
            if value is not None:
                return inner(value)
            if fills:
                return default
            if schema.optional:
                return None
            raise ConversionFailed(f"{where}: null value for field that is required and has no default value")

        return convert

    def _out_value(self, schema: Schema, where: str) -> Convert:
        kind = schema.type
        if schema.name == DECIMAL:
            return self._out_decimal(schema, where)
        if kind == "struct":
            return self._out_struct(schema, where)
        if kind == "array":
            item = self._out(_inner(schema), f"{where}[]")
            return lambda value: [item(element) for element in _of(value, list | tuple, kind, where)]
        if kind == "map":
            return self._out_map(schema, where)
        if kind in _INTEGERS:
            limit = _INTEGERS[kind]

            def integer(value: Any) -> int:
                if isinstance(value, bool) or not isinstance(value, int) or not -limit <= value < limit:
                    raise ConversionFailed(f"{where}: {value!r:.80} is no {kind}")
                return value

            return integer
        if kind in {"float32", "float64"}:
            return lambda value: _float_out(_of(value, int | float, kind, where), single=kind == "float32")
        if kind == "bytes":
            return lambda value: base64.b64encode(_of(value, bytes | bytearray | memoryview, kind, where)).decode()
        wanted: Any = bool if kind == "boolean" else str
        return lambda value: _of(value, wanted, kind, where)

    def _out_struct(self, schema: Schema, where: str) -> Convert:
        parts = [(field.name, self._out(field.schema, f"{where}.{field.name}")) for field in schema.fields]
        known = {field.name for field in schema.fields}

        def convert(value: Any) -> Any:
            struct = _of(value, Mapping, "struct", where)
            if not struct.keys() <= known:
                raise ConversionFailed(f"{where}: {sorted(struct.keys() - known)[0]} is not a field of its schema")
            return {name: inner(struct.get(name)) for name, inner in parts}

        return convert

    def _out_map(self, schema: Schema, where: str) -> Convert:
        assert schema.key_schema is not None
        key = self._out(schema.key_schema, f"{where} key")
        item = self._out(_inner(schema), f"{where}{{}}")
        if schema.key_schema.type == "string":
            return lambda value: {
                key(name): item(content) for name, content in _of(value, Mapping, "map", where).items()
            }
        return lambda value: [[key(name), item(content)] for name, content in _of(value, Mapping, "map", where).items()]

    def _out_decimal(self, schema: Schema, where: str) -> Convert:
        scale = scale_of(schema)

        def convert(value: Any) -> Any:
            raw = decimal_to_bytes(value, scale) if isinstance(value, decimal.Decimal) else value
            if not isinstance(raw, bytes | bytearray):
                raise ConversionFailed(f"{where}: {value!r:.80} is no decimal")
            if self._numeric:
                return msgspec.Raw(format(decimal_from_bytes(raw, scale), "f").encode())
            return base64.b64encode(raw).decode()

        return convert

    # In

    def _in(self, schema: Schema, value: Any) -> Any:
        if value is None:
            if self._defaults and schema.has_default and schema.default is not None:
                return schema.default
            if schema.optional:
                return None
            raise ConversionFailed(f"Invalid null value for required {schema.type.upper()} field")
        kind = schema.type
        try:
            if schema.name == DECIMAL and not isinstance(value, str):
                return decimal_to_bytes(decimal.Decimal(value), scale_of(schema))
            if kind == "struct":
                given = _of(value, dict, kind, "a struct")
                return {field.name: self._in(field.schema, given.get(field.name)) for field in schema.fields}
            if kind == "array":
                return [self._in(_inner(schema), element) for element in _of(value, list, kind, "an array")]
            if kind == "map":
                assert schema.key_schema is not None
                pairs = value.items() if isinstance(value, dict) else value
                return {self._in(schema.key_schema, name): self._in(_inner(schema), content) for name, content in pairs}
            if kind in _INTEGERS:
                return int(_of(value, int, kind, "a number"))
            if kind in {"float32", "float64"}:
                return float(value)
            if kind == "bytes":
                return base64.b64decode(_of(value, str, kind, "bytes"), validate=True)
            return _of(value, bool if kind == "boolean" else str, kind, "a value")
        except (ValueError, TypeError, binascii.Error, decimal.DecimalException) as problem:
            raise ConversionFailed(f"{value!r:.80} is no {kind}: {problem}") from None


def _inner(schema: Schema) -> Schema:
    assert schema.value_schema is not None, "an array or a map has a schema for what is in it"
    return schema.value_schema


def _of(value: Any, kinds: Any, name: str, where: str) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise ConversionFailed(f"{where}: {value!r:.80} is no {name}")
    return value


def _float_out(value: float, *, single: bool) -> Any:
    value = float(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return shortest_single(value) if single else value


def shortest_single(value: float) -> float:
    """Return the shortest float equal in single precision, as Java prints it."""
    try:
        packed = _FLOAT.pack(value)
    except OverflowError:
        raise ConversionFailed(f"{value} is too large for a float32") from None
    for digits in range(6, 9):
        shorter = float(f"{value:.{digits}g}")
        if _FLOAT.pack(shorter) == packed:
            return shorter
    return value


def _plain_out(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return _float_out(value, single=False)
    if isinstance(value, Mapping):
        if all(isinstance(name, str) for name in value):
            return {name: _plain_out(content) for name, content in value.items()}
        return [[_plain_out(name), _plain_out(content)] for name, content in value.items()]
    if isinstance(value, list | tuple):
        return [_plain_out(element) for element in value]
    return value


def _encode(value: Any) -> bytes:
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError, UnicodeEncodeError) as problem:
        raise ConversionFailed(f"no JSON: {problem}") from None
