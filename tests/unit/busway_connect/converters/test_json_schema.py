"""Connect's schemas as JSON objects, and back."""

from typing import Any

import pytest

from busway_connect.converters.interface import ConversionFailed
from busway_connect.converters.json_schema import schema_from_json, schema_to_json
from busway_connect.schema import Field, Schema

STRUCT = Schema(
    type="struct",
    name="shop.Order",
    version=2,
    doc="an order",
    fields=(
        Field(name="id", schema=Schema(type="int64")),
        Field(name="ratio", schema=Schema(type="float32", optional=True, default=0.5, has_default=True)),
        Field(name="total", schema=Schema(type="bytes", name="Decimal", parameters=(("scale", "2"),))),
        Field(name="tags", schema=Schema(type="array", value_schema=Schema(type="string"))),
        Field(
            name="prices",
            schema=Schema(type="map", key_schema=Schema(type="string"), value_schema=Schema(type="float64")),
        ),
    ),
)
WRITTEN: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"type": "int64", "optional": False, "field": "id"},
        {"type": "float", "optional": True, "default": 0.5, "field": "ratio"},
        {"type": "bytes", "optional": False, "name": "Decimal", "parameters": {"scale": "2"}, "field": "total"},
        {"type": "array", "items": {"type": "string", "optional": False}, "optional": False, "field": "tags"},
        {
            "type": "map",
            "keys": {"type": "string", "optional": False},
            "values": {"type": "double", "optional": False},
            "optional": False,
            "field": "prices",
        },
    ],
    "optional": False,
    "name": "shop.Order",
    "version": 2,
    "doc": "an order",
}


def plain(schema: Schema, value: Any) -> Any:
    """Pass a default on."""
    return value


def test_a_schema_and_its_json() -> None:
    """Kafka Connect calls the floats `float` and `double` in JSON."""
    written = schema_to_json(STRUCT, plain)
    assert written == WRITTEN
    assert list(written) == list(WRITTEN)
    assert schema_from_json(written, plain) == STRUCT


def test_a_default_is_converted_with_its_schema() -> None:
    """In both directions."""
    asked: list[tuple[str, Any]] = []

    def convert(schema: Schema, value: Any) -> Any:
        asked.append((schema.type, value))
        return value * 2

    schema = Schema(type="int32", default=21, has_default=True)
    assert schema_to_json(schema, convert)["default"] == 42
    assert schema_from_json({"type": "int32", "default": 42}, convert).default == 84
    assert asked == [("int32", 21), ("int32", 42)]


def test_a_default_of_none_is_not_written() -> None:
    """Java's converter cannot tell it from no default."""
    assert "default" not in schema_to_json(Schema(type="string", optional=True, has_default=True), plain)
    assert not schema_from_json({"type": "string", "optional": True, "default": None}, plain).has_default


def test_attributes_of_another_type_are_ignored() -> None:
    """As in Java's converter."""
    odd = schema_from_json({"type": "string", "optional": "yes", "name": 1, "version": "1", "doc": 5}, plain)
    assert odd == Schema(type="string")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (None, "Schema must contain 'type' field"),
        ({}, "Schema must contain 'type' field"),
        ({"type": 5}, "Schema must contain 'type' field"),
        ({"type": "float32"}, "Unknown schema type: float32"),
        ({"type": "string", "parameters": {"scale": 2}}, "Schema parameters must have string values"),
        ({"type": "struct"}, 'Struct schema\'s "fields" argument is not an array'),
        ({"type": "struct", "fields": [{"type": "string"}]}, "Struct schema's field name not specified properly"),
        ({"type": "array"}, "Schema must contain 'type' field"),
        ({"type": "map", "keys": {"type": "string"}}, "Schema must contain 'type' field"),
    ],
)
def test_what_is_no_schema(given: Any, problem: str) -> None:
    """In the words of Java's converter, which users search for."""
    with pytest.raises(ConversionFailed, match=problem):
        schema_from_json(given, plain)


@pytest.mark.parametrize("schema", [Schema(type="array"), Schema(type="map", key_schema=Schema(type="string"))])
def test_a_collection_without_the_schema_of_its_parts(schema: Schema) -> None:
    """A transform can make one."""
    with pytest.raises(ConversionFailed, match="no schema for what is in it"):
        schema_to_json(schema, plain)
