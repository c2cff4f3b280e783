"""A schema tree → its text, as Avro's Java library writes it.

Here: the canonical form for storage and comparison, and the normalised form (`normalize=true`).
Not here: Avro's parsing canonical form, which drops documentation and defaults; the registry keeps them.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

from busway_registry.domain.avro.json_text import dump_json, narrowed
from busway_registry.domain.avro.schema import (
    MISSING,
    PRIMITIVES,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Schema,
    Union,
)

_TYPE_NAMES: Final = frozenset(
    [
        "record",
        "enum",
        "array",
        "map",
        "union",
        "fixed",
        "string",
        "bytes",
        "int",
        "long",
        "float",
        "double",
        "boolean",
        "null",
    ]
)
_LOGICAL_TYPES: Final = {
    "date": {"int"},
    "time-millis": {"int"},
    "time-micros": {"long"},
    "timestamp-millis": {"long"},
    "timestamp-micros": {"long"},
    "local-timestamp-millis": {"long"},
    "local-timestamp-micros": {"long"},
    "uuid": {*PRIMITIVES, "fixed"},
    "big-decimal": {"bytes"},
}
"""Logical types of Java's library and their base types; decimals are separate."""
_JAVA_WORDS: Final = ("avro.java.string", "java-class", "java-key-class", "java-element-class")
"""Properties that exclude a logical type."""


def canonical(schema: Schema, *, normalize: bool = False, referenced: frozenset[str] = frozenset()) -> str:
    """Return compact JSON in Java's form.

    Attributes are in Java's order, names are shortened inside their own namespace, and a named type is defined at its
    first use.

    Args:
        normalize: also sort properties (a known logical type first) and aliases, write defaults in their type's form,
            and omit empty documentation of named types.
        referenced: names of types from references, not defined again.
    """
    return dump_json(_Writer(normalize, referenced).schema(schema, ""))


class _Writer:
    def __init__(self, normalize: bool, referenced: frozenset[str]) -> None:
        self._normalize = normalize
        self._defined = {name: name for name in referenced}

    def schema(self, schema: Schema, namespace: str) -> Any:
        if isinstance(schema, Primitive):
            properties = self._properties(schema)
            return {"type": schema.type, **properties} if properties else schema.type
        if isinstance(schema, Array):
            items = self.schema(schema.items, namespace)
            return {"type": "array", "items": items, **self._properties(schema)}
        if isinstance(schema, Map):
            values = self.schema(schema.values, namespace)
            return {"type": "map", "values": values, **self._properties(schema)}
        if isinstance(schema, Named):
            return self._named(schema, namespace)
        return [self.schema(branch, namespace) for branch in schema.branches]

    def _named(self, schema: Record | Enum | Fixed, namespace: str) -> Any:
        if schema.name in self._defined:
            return _shortened(self._defined[schema.name], namespace)
        # Java's normal form writes only full names, so a type without a namespace gets the enclosing one, and errors become
        # records.
        own = schema.namespace or (namespace if self._normalize else "")
        self._defined[schema.name] = f"{own}.{schema.short_name}" if own else schema.name
        kind = "record" if self._normalize and schema.type == "error" else schema.type
        written_type: dict[str, Any] = {"type": kind, "name": schema.short_name}
        if own != namespace:
            written_type["namespace"] = own
        if schema.doc or (schema.doc is not None and not self._normalize):
            written_type["doc"] = schema.doc
        if isinstance(schema, Record):
            written_type["fields"] = [self._field(field, own) for field in schema.fields]
        elif isinstance(schema, Enum):
            written_type["symbols"] = list(schema.symbols)
            if schema.default is not None:
                written_type["default"] = schema.default
        else:
            written_type["size"] = schema.size
        written_type.update(self._properties(schema))
        if schema.aliases:
            aliases = sorted(schema.aliases, key=_java_order) if self._normalize else schema.aliases
            # Inside a namespace Java writes `F` and `.F` alike; its normal form removes the duplicate.
            written = [_shortened(alias, own) for alias in aliases]
            written_type["aliases"] = list(dict.fromkeys(written)) if self._normalize else written
        return written_type

    def _field(self, field: Field, namespace: str) -> dict[str, Any]:
        written_field: dict[str, Any] = {"name": field.name, "type": self.schema(field.schema, namespace)}
        if field.doc is not None:
            written_field["doc"] = field.doc
        if field.default is not MISSING:
            written_field["default"] = (
                _normal_default(field.schema, field.default) if self._normalize else field.default
            )
        if field.order != "ascending":
            written_field["order"] = field.order
        if field.aliases:
            written_field["aliases"] = (
                sorted(field.aliases, key=_java_order) if self._normalize else list(field.aliases)
            )
        written_field.update(_sorted(field.properties) if self._normalize else field.properties)
        return written_field

    def _properties(self, schema: Primitive | Array | Map | Record | Enum | Fixed) -> dict[str, Any]:
        if not self._normalize:
            return dict(schema.properties)
        properties = _sorted(schema.properties)
        first = {name: properties[name] for name in _logical_words(schema)}
        return {**first, **properties}


def _sorted(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _deeply_sorted(properties[name]) for name in sorted(properties, key=_java_order)}


def _deeply_sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return _sorted(value)
    return [_deeply_sorted(item) for item in value] if isinstance(value, list) else value


def _java_order(text: str) -> bytes:
    """Return a sort key: Java compares strings by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def _logical_words(schema: Schema) -> list[str]:
    if not isinstance(schema, Primitive | Fixed):
        return []
    name = schema.properties.get("logicalType")
    if not isinstance(name, str) or any(isinstance(schema.properties.get(word), str) for word in _JAVA_WORDS):
        return []
    if name == "decimal":
        return _decimal_words(schema)
    return ["logicalType"] if schema.type in _LOGICAL_TYPES.get(name, ()) else []


def _decimal_words(schema: Primitive | Fixed) -> list[str]:
    precision: Any = schema.properties.get("precision")
    scale: Any = schema.properties.get("scale", 0)
    if not _is_int(precision) or not _is_int(scale) or not 0 <= scale <= precision or precision == 0:
        return []
    if isinstance(schema, Fixed):
        fits = precision <= math.floor(math.log10(2) * (8 * schema.size - 1))
    else:
        fits = schema.type == "bytes"
    if not fits:
        return []
    return ["logicalType", "precision", "scale"] if scale else ["logicalType", "precision"]


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31


def _normal_default(schema: Schema | None, value: Any) -> Any:
    """Return the default as Java writes it after parsing."""
    if isinstance(schema, Union):
        return _normal_default(schema.branches[0], value) if schema.branches else value
    if isinstance(value, list):
        items = schema.items if isinstance(schema, Array) else None
        return [_normal_default(items, item) for item in value]
    if isinstance(value, dict):
        return {
            name: _normal_default(_part_named(schema, name), value[name]) for name in sorted(value, key=_java_order)
        }
    if schema is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("latin-1", "replace").decode("latin-1") if schema.type in {"bytes", "fixed"} else value
    if isinstance(value, int | float) and schema.type in {"float", "double"}:
        return narrowed(float(value)) if schema.type == "float" else float(value)
    return value


def _part_named(schema: Schema | None, name: str) -> Schema | None:
    if isinstance(schema, Map):
        return schema.values
    field = schema.by_name.get(name) if isinstance(schema, Record) else None
    return field.schema if field is not None else None


def _shortened(name: str, namespace: str) -> str:
    space, _, short = name.rpartition(".")
    return short if space == namespace and (not space or short not in _TYPE_NAMES) else name
