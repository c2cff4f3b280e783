"""Connect's schemas as JSON, like `org.apache.kafka.connect.json.JsonConverter`.

Here: the envelope's schema.
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
    """Return the schema as a JSON object in Java's order. `default_to_json(schema, value)` writes a default."""
    written: dict[str, Any] = {"type": _NAMES.get(schema.type, schema.type)}
    if schema.type == "array":
        written["items"] = schema_to_json(_part(schema.value_schema), default_to_json)
    elif schema.type == "map":
        written["keys"] = schema_to_json(_part(schema.key_schema), default_to_json)
        written["values"] = schema_to_json(_part(schema.value_schema), default_to_json)
    elif schema.type == "struct":
        written["fields"] = [
            {**schema_to_json(field.schema, default_to_json), "field": field.name} for field in schema.fields
        ]
    written["optional"] = schema.optional
    if schema.name is not None:
        written["name"] = schema.name
    if schema.version is not None:
        written["version"] = schema.version
    if schema.doc is not None:
        written["doc"] = schema.doc
    if schema.parameters:
        written["parameters"] = dict(schema.parameters)
    if schema.has_default and schema.default is not None:
        written["default"] = default_to_json(schema, schema.default)
    return written


def _part(schema: Schema | None) -> Schema:
    if schema is None:
        raise ConversionFailed("an array or a map has no schema for what is in it")
    return schema


def schema_from_json(given: Any, default_from_json: Any) -> Schema:
    """Return the schema of a JSON object; raises `ConversionFailed`."""
    if not isinstance(given, dict) or not isinstance(given.get("type"), str):
        raise ConversionFailed("Schema must contain 'type' field")
    kind = _TYPES.get(given["type"])
    if kind is None:
        raise ConversionFailed(f"Unknown schema type: {given['type']}")
    parameters = given.get("parameters") or {}
    if not isinstance(parameters, dict) or not all(isinstance(text, str) for text in parameters.values()):
        raise ConversionFailed("Schema parameters must have string values.")
    made = Schema(
        type=kind,
        optional=given.get("optional") is True,
        name=given["name"] if isinstance(given.get("name"), str) else None,
        version=given["version"] if isinstance(given.get("version"), int) else None,
        doc=given["doc"] if isinstance(given.get("doc"), str) else None,
        parameters=tuple(parameters.items()),
        fields=_fields(given, default_from_json) if kind == "struct" else (),
        key_schema=schema_from_json(given.get("keys"), default_from_json) if kind == "map" else None,
        value_schema=_value_schema(kind, given, default_from_json),
    )
    if given.get("default") is None:
        return made
    return dataclasses.replace(made, default=default_from_json(made, given["default"]), has_default=True)


def _value_schema(kind: Type, given: dict[str, Any], default_from_json: Any) -> Schema | None:
    part = {"array": "items", "map": "values"}.get(kind)
    return None if part is None else schema_from_json(given.get(part), default_from_json)


def _fields(given: dict[str, Any], default_from_json: Any) -> tuple[Field, ...]:
    fields = given.get("fields")
    if not isinstance(fields, list):
        raise ConversionFailed('Struct schema\'s "fields" argument is not an array.')
    made = []
    for field in fields:
        if not isinstance(field, dict) or not isinstance(field.get("field"), str):
            raise ConversionFailed("Struct schema's field name not specified properly")
        made.append(Field(name=field["field"], schema=schema_from_json(field, default_from_json)))
    return tuple(made)
