"""Kafka Connect's data model.

Here: `Schema` and its fields, as plain values.
Not here: bytes (`converters`).

Values are Python's int, float, str, bytes, bool, None, dict for structs and maps, list for arrays, in the form that the
schema's `name` prescribes (Debezium's `io.debezium.time.MicroTimestamp` is an int64 of microseconds). Source: Apache
Kafka's `org.apache.kafka.connect.data` and its `JsonConverter`.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Type: TypeAlias = Literal[
    "int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string", "bytes", "array", "map", "struct"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    schema: "Schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The type of a value.

    Attributes:
        optional: None is a value.
        name, version, parameters: semantic type, such as `org.apache.kafka.connect.data.Decimal` with its scale.
        default: for missing fields; `has_default` tells a default of None from none.
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
