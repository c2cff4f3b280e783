"""The tree of an Avro schema.

What lives here: one class per kind of schema, as Avro 1.11 defines them. What does not: reading JSON (`parser`), writing it
(`canonical`), comparing two (`compatibility.avro`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})

MISSING: Final = object()
"""Stands for a default that is not there; None is the default `null`."""


@dataclass(slots=True, kw_only=True, eq=False)
class Primitive:
    """One of `PRIMITIVES`, with its other properties such as `logicalType`."""

    type: str
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True, eq=False)
class Named:
    """What a record, an enum and a fixed share; `name` is the full name, `aliases` are full names."""

    type: str
    name: str
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        """The namespace; empty for none."""
        return self.name.rpartition(".")[0]


@dataclass(slots=True, kw_only=True, eq=False)
class Field:
    """One field of a record; `default` is a JSON value or `MISSING`."""

    name: str
    schema: "Schema"
    default: Any = MISSING
    doc: str | None = None
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True, eq=False)
class Record(Named):
    """A record, or with `type` "error" an error; its fields are set after it, as they may refer to it. `required` are the names of
    those without a default.
    """

    fields: tuple[Field, ...] = ()
    by_name: Mapping[str, Field] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    complete: bool = False

    def set_fields(self, fields: tuple[Field, ...]) -> None:
        """The fields, once all of them have been read."""
        assert not self.complete
        self.fields = fields
        self.by_name = {field.name: field for field in fields}
        self.required = tuple(field.name for field in fields if field.default is MISSING)
        self.complete = True


@dataclass(slots=True, kw_only=True, eq=False)
class Enum(Named):
    """An enum; `default` is the symbol that stands for ones the reader does not know."""

    symbols: tuple[str, ...]
    default: str | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Fixed(Named):
    """`size` bytes."""

    size: int


@dataclass(slots=True, kw_only=True, eq=False)
class Array:
    """An array of `items`."""

    items: "Schema"
    properties: Mapping[str, Any] = field(default_factory=dict)
    type: str = "array"


@dataclass(slots=True, kw_only=True, eq=False)
class Map:
    """A map from strings to `values`."""

    values: "Schema"
    properties: Mapping[str, Any] = field(default_factory=dict)
    type: str = "map"


@dataclass(slots=True, kw_only=True, eq=False)
class Union:
    """One of `branches`."""

    branches: tuple["Schema", ...]
    type: str = "union"


Schema: TypeAlias = Primitive | Record | Enum | Fixed | Array | Map | Union
