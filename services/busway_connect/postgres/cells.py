"""Reading a table's columns from a row.

Here: a column's schema, name, reader and mask.
Not here: records (`records`), types (`columns`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from busway_connect.connector import ConfigInvalid
from busway_connect.postgres import defaults
from busway_connect.postgres.catalog import Column, TableId, Types
from busway_connect.postgres.columns import NO_PLACEHOLDER, UNLIMITED, Codec, text_length
from busway_connect.postgres.masks import Mask
from busway_connect.schema import Field, Schema


@dataclass(frozen=True, slots=True)
class Cell:
    index: int
    name: str
    read: Callable[[str], Any]
    nothing: Any
    unchanged: Any
    optional: bool


def column_schema(column: Column, codec: Codec) -> Schema:
    default = defaults.default_of(codec, column.default)
    schema = replace(codec.schema, optional=column.optional or codec.always_optional)
    return schema if default is defaults.NONE else replace(schema, default=default, has_default=True)


def require_own_names(table: TableId, fields: Mapping[str, Field]) -> None:
    """Check that adjusted column names are unique; raises `ConfigInvalid`."""
    columns: dict[str, str] = {}
    for column, field in fields.items():
        other = columns.setdefault(field.name, column)
        if other != column:
            raise ConfigInvalid(
                {
                    "field.name.adjustment.mode": f"the columns {other} and {column} of {table} both become {field.name}; set"
                    " avro_unicode, or leave one out by column.exclude.list"
                }
            )


def require_no_key(table: TableId, column: str, key: Collection[str], mask: Mask) -> None:
    """Refuse a masked column in the key; raises `ConfigInvalid`."""
    if column in key:
        raise ConfigInvalid(
            {
                mask.setting: f"{column} of {table} is in the key, and keys go out as they are; name another key in"
                " message.key.columns, or take the column out of this setting"
            }
        )


def masked_length(types: Types, column: Column, codec: Codec, mask: Mask) -> int | None:
    """Return the length of a maskable column; None for one that passes unchanged."""
    length = text_length(types, column.type_oid, column.type_modifier)
    if length is None and mask.truncates and codec.schema.type == "string":
        return UNLIMITED  # uuid and JSON can be cut as text, but not masked
    return length


def masked(cell: Cell, mask: Mask, length: int) -> Cell:
    unchanged = cell.unchanged
    return replace(
        cell,
        read=lambda text: mask.of(cell.read(text), length),
        nothing=mask.of(cell.nothing, length),
        unchanged=unchanged if unchanged is NO_PLACEHOLDER else mask.of(unchanged, length),
    )


def cell_of(index: int, column: Column, codec: Codec, schema: Schema, name: str) -> Cell:
    nothing = None
    if not column.optional:
        nothing = schema.default if schema.has_default else codec.fallback
    return Cell(index, name, codec.read, nothing, codec.unchanged, column.optional)
