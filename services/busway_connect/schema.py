"""Kafka Connect's data model: what a connector says of the data it hands over.

What lives here: `Schema` and its fields, as plain values. What does not: bytes (`converters`). Values are Python's own: int, float, str,
bytes, bool, None, dict for a struct and a map, list for an array; whatever a schema's `name` stands for is already in the form that this
name prescribes (Debezium's `io.debezium.time.MicroTimestamp` is an int64 of microseconds, and so on).
Source: Apache Kafka's `org.apache.kafka.connect.data` and the schema JSON of its `JsonConverter`.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Type: TypeAlias = Literal[
    "int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string", "bytes", "array", "map", "struct"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A member of a struct."""

    name: str
    schema: "Schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The type of a value.

    Attributes:
        type: as Kafka Connect names it.
        optional: whether None is a value.
        name, version, parameters: what the type stands for, such as `org.apache.kafka.connect.data.Decimal` with its scale.
        doc: for people.
        default: the value where a struct has none; `has_default` tells a default of None from no default.
        fields: of a struct, in order.
        key_schema, value_schema: of a map; `value_schema` also of an array's elements.
    """

    type: Type
    optional: bool = False
    name: str | None = None
    version: int | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    doc: str | None = None
    default: Any = None
    has_default: bool = False
    fields: tuple[Field, ...] = ()
    key_schema: "Schema | None" = None
    value_schema: "Schema | None" = None
