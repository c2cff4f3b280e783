"""The tree of an Avro schema.

Here: a class for each kind of schema of Avro 1.11.
Not here: JSON (`parser`, `canonical`), comparison (`compatibility.avro`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})

MISSING: Final = object()
"""No default, as opposed to None, the default `null`."""


@dataclass(slots=True, kw_only=True, eq=False)
class Primitive:
    """One of `PRIMITIVES`, with other properties such as `logicalType`."""

    type: str
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True, eq=False)
class Named:
    """Common parts of record, enum and fixed; `name` and `aliases` are full names."""

    type: str
    name: str
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]


@dataclass(slots=True, kw_only=True, eq=False)
class Field:
    """A record's field; `default` is a JSON value or `MISSING`."""

    name: str
    schema: "Schema"
    default: Any = MISSING
    doc: str | None = None
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True, eq=False)
class Record(Named):
    """A record, or with `type` "error" an error. Fields are set later, as they may refer to it; `required`: fields
    without a default.
    """

    fields: tuple[Field, ...] = ()
    by_name: Mapping[str, Field] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    complete: bool = False

    def set_fields(self, fields: tuple[Field, ...]) -> None:
        assert not self.complete
        self.fields = fields
        self.by_name = {field.name: field for field in fields}
        self.required = tuple(field.name for field in fields if field.default is MISSING)
        self.complete = True


@dataclass(slots=True, kw_only=True, eq=False)
class Enum(Named):
    """An enum; readers replace unknown symbols by `default`."""

    symbols: tuple[str, ...]
    default: str | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Fixed(Named):
    size: int


@dataclass(slots=True, kw_only=True, eq=False)
class Array:
    items: "Schema"
    properties: Mapping[str, Any] = field(default_factory=dict)
    type: str = "array"


@dataclass(slots=True, kw_only=True, eq=False)
class Map:
    values: "Schema"
    properties: Mapping[str, Any] = field(default_factory=dict)
    type: str = "map"


@dataclass(slots=True, kw_only=True, eq=False)
class Union:
    branches: tuple["Schema", ...]
    type: str = "union"


Schema: TypeAlias = Primitive | Record | Enum | Fixed | Array | Map | Union
