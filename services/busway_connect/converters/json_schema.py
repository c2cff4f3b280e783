"""Connect's schemas as JSON, as `org.apache.kafka.connect.json.JsonConverter` writes and reads them.

What lives here: the schema half of its envelope. What does not: values (`json`).
"""

import dataclasses
from typing import Any, Final

from busway_connect.converters.interface import ConversionFailed
from busway_connect.schema import Field, Schema, Type

_NAMES: Final[dict[Type, str]] = {"float32": "float", "float64": "double"}
_TYPES: Final[dict[str, Type]] = {
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "float": "float32",
    "double": "float64",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
    "array": "array",
    "map": "map",
    "struct": "struct",
}


def schema_to_json(schema: Schema, default_to_json: Any) -> dict[str, Any]:
    """The schema as a JSON object, its members in Java's order; `default_to_json(schema, value)` writes a default."""
    found: dict[str, Any] = {"type": _NAMES.get(schema.type, schema.type)}
    if schema.type == "array":
        found["items"] = schema_to_json(_part(schema.value_schema), default_to_json)
    elif schema.type == "map":
        found["keys"] = schema_to_json(_part(schema.key_schema), default_to_json)
        found["values"] = schema_to_json(_part(schema.value_schema), default_to_json)
    elif schema.type == "struct":
        found["fields"] = [{**schema_to_json(one.schema, default_to_json), "field": one.name} for one in schema.fields]
    found["optional"] = schema.optional
    if schema.name is not None:
        found["name"] = schema.name
    if schema.version is not None:
        found["version"] = schema.version
    if schema.doc is not None:
        found["doc"] = schema.doc
    if schema.parameters:
        found["parameters"] = dict(schema.parameters)
    if schema.has_default and schema.default is not None:
        found["default"] = default_to_json(schema, schema.default)
    return found


def _part(schema: Schema | None) -> Schema:
    if schema is None:
        raise ConversionFailed("an array or a map has no schema for what is in it")
    return schema


def schema_from_json(found: Any, default_from_json: Any) -> Schema:
    """The schema in a JSON object.

    Raises:
        ConversionFailed: it is none.
    """
    if not isinstance(found, dict) or not isinstance(found.get("type"), str):
        raise ConversionFailed("Schema must contain 'type' field")
    kind = _TYPES.get(found["type"])
    if kind is None:
        raise ConversionFailed(f"Unknown schema type: {found['type']}")
    parameters = found.get("parameters") or {}
    if not isinstance(parameters, dict) or not all(isinstance(text, str) for text in parameters.values()):
        raise ConversionFailed("Schema parameters must have string values.")
    made = Schema(
        type=kind,
        optional=found.get("optional") is True,
        name=found["name"] if isinstance(found.get("name"), str) else None,
        version=found["version"] if isinstance(found.get("version"), int) else None,
        doc=found["doc"] if isinstance(found.get("doc"), str) else None,
        parameters=tuple(parameters.items()),
        fields=_fields(found, default_from_json) if kind == "struct" else (),
        key_schema=schema_from_json(found.get("keys"), default_from_json) if kind == "map" else None,
        value_schema=_value_schema(kind, found, default_from_json),
    )
    if found.get("default") is None:
        return made
    return dataclasses.replace(made, default=default_from_json(made, found["default"]), has_default=True)


def _value_schema(kind: Type, found: dict[str, Any], default_from_json: Any) -> Schema | None:
    part = {"array": "items", "map": "values"}.get(kind)
    return None if part is None else schema_from_json(found.get(part), default_from_json)


def _fields(found: dict[str, Any], default_from_json: Any) -> tuple[Field, ...]:
    fields = found.get("fields")
    if not isinstance(fields, list):
        raise ConversionFailed('Struct schema\'s "fields" argument is not an array.')
    made = []
    for one in fields:
        if not isinstance(one, dict) or not isinstance(one.get("field"), str):
            raise ConversionFailed("Struct schema's field name not specified properly")
        made.append(Field(name=one["field"], schema=schema_from_json(one, default_from_json)))
    return tuple(made)
