"""Connect's schemas ↔ Avro's, like Confluent's `AvroData`.

Here: both directions, as plain JSON.
Not here: values (`avro`).

Properties `connect.*` keep what Avro cannot express (`int16`, a name on a primitive, versions, parameters). Source:
`io.confluent.connect.avro.AvroData` with default settings.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote_plus

from busway_connect.converters.interface import ConversionFailed
from busway_connect.decimals import DECIMAL
from busway_connect.schema import Field, Schema, Type

NAMESPACE: Final = "io.confluent.connect.avro"
_MAP_ENTRY: Final = "MapEntry"
_UNION: Final = f"{NAMESPACE}.Union"
_DEFAULT_PRECISION: Final = 64
_PRECISION: Final = "connect.decimal.precision"
_PRIMITIVES: Final[dict[Type, str]] = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float32": "float",
    "float64": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
_LOGICAL: Final = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}
_NAME_OF: Final = {text: name for name, text in _LOGICAL.items()}
_FROM_AVRO: Final[dict[str, Type]] = {
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
    "fixed": "bytes",
    "enum": "string",
}


def scrubbed(name: str) -> str:
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or not name:
        return name
    text = quote_plus(name)
    return re.sub(r"[^A-Za-z0-9_]", "_", f"x{text}" if text[0].isdigit() else text)


class ToAvro:
    """Converts a schema to Avro.

    Args:
        default_out: writes a default as Avro's JSON.
    """

    def __init__(self, default_out: Any, *, scrub: bool) -> None:
        self._default_out = default_out
        self._scrub = scrub
        self._named: dict[str, Schema] = {}
        self._anonymous = 0

    def convert(self, schema: Schema) -> Any:
        inner = self._inner(schema)
        if not schema.optional:
            return inner
        has_default = schema.has_default and schema.default is not None and schema.type != "struct"
        return [inner, "null"] if has_default else ["null", inner]

    def _inner(self, schema: Schema) -> Any:
        made: Any
        if schema.type == "struct":
            made = self._record(schema)
            if isinstance(made, str):
                return made
        elif schema.type == "array":
            made = {"type": "array", "items": self.convert(_part(schema.value_schema))}
        elif schema.type == "map":
            made = self._map(schema)
        else:
            made = {"type": _PRIMITIVES[schema.type]}
            if schema.name == DECIMAL:
                parameters = dict(schema.parameters)
                made["scale"] = int(parameters.get("scale", 0))
                made["precision"] = int(parameters.get(_PRECISION, _DEFAULT_PRECISION))
        self._annotate(made, schema)
        return made["type"] if made.keys() == {"type"} else made

    def _annotate(self, made: dict[str, Any], schema: Schema) -> None:
        if schema.doc is not None:
            made["connect.doc"] = schema.doc
        if schema.version is not None:
            made["connect.version"] = schema.version
        if schema.parameters:
            made["connect.parameters"] = dict(schema.parameters)
        if schema.has_default and schema.default is not None:
            made["connect.default"] = self._default_out(schema, schema.default)
        if schema.name is not None:
            made["connect.name"] = schema.name
        if schema.type in {"int8", "int16"}:
            made["connect.type"] = schema.type
        if schema.name == DECIMAL and 0 <= made["scale"] <= made["precision"]:
            made["logicalType"] = "decimal"
        elif schema.name in _LOGICAL:
            made["logicalType"] = _LOGICAL[schema.name]

    def _record(self, schema: Schema) -> Any:
        if schema.name is None:
            self._anonymous += 1
            namespace, name = NAMESPACE, f"ConnectDefault{self._anonymous if self._anonymous > 1 else ''}"
        else:
            namespace, _, name = schema.name.rpartition(".")
            namespace, name = ".".join(map(self._valid, namespace.split("."))), self._valid(name)
            known = self._named.get(schema.name)
            if known is not None:
                if known.fields != schema.fields:
                    raise ConversionFailed(f"the schema holds two different structs that are called {schema.name}")
                return f"{namespace}.{name}" if namespace else name
            self._named[schema.name] = schema
        made: dict[str, Any] = {"type": "record", "name": name}
        if namespace:
            made["namespace"] = namespace
        made["fields"] = [self._field(field) for field in schema.fields]
        return made

    def _field(self, field: Field) -> dict[str, Any]:
        made = {"name": self._valid(field.name), "type": self.convert(field.schema)}
        if field.schema.has_default and field.schema.default is not None:
            made["default"] = self._default_out(field.schema, field.schema.default)
        elif field.schema.optional:
            made["default"] = None
        return made

    def _valid(self, name: str) -> str:
        valid = scrubbed(name)
        if valid != name and not self._scrub:
            raise ConversionFailed(
                f"Avro allows no name {name!r}: set scrub.invalid.names=true to have it changed to {valid}"
            )
        return valid

    def _map(self, schema: Schema) -> dict[str, Any]:
        key, value = _part(schema.key_schema), _part(schema.value_schema)
        if key.type == "string" and not key.optional:
            return {"type": "map", "values": self.convert(value)}
        entry = {
            "type": "record",
            "name": _MAP_ENTRY,
            "namespace": NAMESPACE,
            "fields": [
                self._field(Field(name="key", schema=key)),
                self._field(Field(name="value", schema=value)),
            ],
        }
        return {"type": "array", "items": entry}


def _part(schema: Schema | None) -> Schema:
    if schema is None:
        raise ConversionFailed("an array or a map has no schema for what is in it")
    return schema


class FromAvro:
    def __init__(self) -> None:
        self._named: dict[str, Schema] = {}

    def convert(self, avro: Any, namespace: str = "") -> Schema:
        """Convert; raises `ConversionFailed` if recursive, which is unsupported, or not an Avro schema."""
        if isinstance(avro, list):
            return self._union(avro, namespace)
        if isinstance(avro, str):
            if avro in _FROM_AVRO:
                return Schema(type=_FROM_AVRO[avro])
            known = self._named.get(avro if "." in avro or not namespace else f"{namespace}.{avro}")
            if known is None:
                raise ConversionFailed(f"the Avro schema names {avro}, which is not known there; it may be recursive")
            return known
        if not isinstance(avro, dict):
            raise ConversionFailed(f"no Avro schema: {avro!r:.80}")
        kind = avro.get("type")
        if kind in {"record", "error"}:
            return self._record(avro, namespace)
        if kind == "array":
            return self._array(avro, namespace)
        if kind == "map":
            inner = self.convert(avro.get("values"), namespace)
            return _annotated(Schema(type="map", key_schema=Schema(type="string"), value_schema=inner), avro)
        if isinstance(kind, dict | list) or kind not in _FROM_AVRO:
            return self.convert(kind, namespace)
        assert isinstance(kind, str)
        made = _annotated(Schema(type=_FROM_AVRO[kind]), avro)
        if kind in {"enum", "fixed"}:
            self._named[_full_name(avro, namespace)] = made
        return made

    def _union(self, avro: list[Any], namespace: str) -> Schema:
        others = [member for member in avro if member != "null"]
        optional = len(others) < len(avro)
        if len(others) == 1:
            return dataclasses.replace(self.convert(others[0], namespace), optional=optional)
        fields = []
        for member in others:
            name = member if isinstance(member, str) else member.get("name", member.get("type"))
            inner = dataclasses.replace(self.convert(member, namespace), optional=True)
            fields.append(Field(name=str(name).rpartition(".")[2], schema=inner))
        return Schema(type="struct", name=_UNION, fields=tuple(fields), optional=optional)

    def _array(self, avro: dict[str, Any], namespace: str) -> Schema:
        items = avro.get("items")
        if isinstance(items, dict) and _full_name(items, namespace) == f"{NAMESPACE}.{_MAP_ENTRY}":
            entry = self.convert(items, namespace)
            parts = {field.name: field.schema for field in entry.fields}
            made = Schema(type="map", key_schema=parts["key"], value_schema=parts["value"])
        else:
            made = Schema(type="array", value_schema=self.convert(items, namespace))
        return _annotated(made, avro)

    def _record(self, avro: dict[str, Any], namespace: str) -> Schema:
        name = _full_name(avro, namespace)
        inner_namespace = name.rpartition(".")[0]
        fields = []
        for field in avro.get("fields", ()):
            inner = self.convert(field["type"], inner_namespace)
            if (
                field.get("default") is not None
                and not inner.has_default
                and not isinstance(field["default"], dict | list)
            ):
                inner = dataclasses.replace(inner, default=_default(inner, field["default"]), has_default=True)
            fields.append(Field(name=field["name"], schema=inner))
        shown = None if name.startswith(f"{NAMESPACE}.ConnectDefault") else name
        made = _annotated(Schema(type="struct", name=shown, fields=tuple(fields)), avro)
        self._named[name] = made
        return made


def _full_name(avro: Mapping[str, Any], namespace: str) -> str:
    name = str(avro.get("name", ""))
    space = avro.get("namespace", namespace)
    return name if "." in name or not space else f"{space}.{name}"


def _annotated(made: Schema, avro: Mapping[str, Any]) -> Schema:
    logical = avro.get("logicalType")
    parameters = {str(name): str(text) for name, text in (avro.get("connect.parameters") or {}).items()}
    name = avro.get("connect.name", made.name)
    version = avro.get("connect.version")
    if logical == "decimal" and made.type == "bytes":
        name, version = DECIMAL, version or 1
        parameters.setdefault("scale", str(avro.get("scale", 0)))
        if avro.get("precision", _DEFAULT_PRECISION) != _DEFAULT_PRECISION:
            parameters.setdefault(_PRECISION, str(avro["precision"]))
    elif isinstance(logical, str) and logical in _NAME_OF:
        name, version = _NAME_OF[logical], version or 1
    kind = avro.get("connect.type", made.type)
    made = dataclasses.replace(
        made,
        type=kind if kind in {"int8", "int16"} else made.type,
        name=name,
        version=version,
        doc=avro.get("connect.doc"),
        parameters=tuple(parameters.items()),
    )
    if avro.get("connect.default") is None:
        return made
    return dataclasses.replace(made, default=_default(made, avro["connect.default"]), has_default=True)


def _default(schema: Schema, value: Any) -> Any:
    """Convert a default. In Avro's JSON bytes are text with a character for each byte."""
    return value.encode("latin-1") if schema.type == "bytes" and isinstance(value, str) else value
