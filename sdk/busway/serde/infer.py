"""A Python type → its Avro schema.

Not here: encoding (`avro`), fields of record classes (`records`). A class may set its namespace with
`__avro_namespace__` (by default that of the enclosing record), former names with `__avro_aliases__`, and an enum the
symbol for unknown ones with `__avro_default__`.

| Python | Avro |
|---|---|
| `None`, `bool`, `str`, `bytes` | null, boolean, string, bytes |
| `int`, `float` | long, double; `Int32` and `Float32` are int and float |
| `list[T]`, `dict[str, T]` | array, map |
| `T | None`, unions | union; null first when the default is None |
| dataclass, msgspec `Struct`, pydantic `BaseModel` | record; a field's default is the schema's |
| `TypedDict` | record; a missing optional key is null |
| `enum.Enum` with string values, `Literal["a", "b"]` | enum, string |
| `datetime`, `date`, `time` | timestamp-micros, date, time-micros |
| `uuid.UUID` | uuid on string |
| `Annotated[Decimal, Precision(12, 2)]` | decimal on bytes |
| `Annotated[T, Alias("old")]` | the type of T; the field's former name |
| `NewType("Id", T)` | the type of T |
"""

import dataclasses
import datetime as dt
import decimal
import enum
import inspect
import json
import math
import typing
import uuid
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from busway.serde.records import (
    NO_DEFAULT,
    CannotInfer,
    FieldType,
    fields,
    is_record,
    is_typed_dict,
    members,
    strip,
    unwrap,
)

AvroSchema: TypeAlias = str | list[Any] | dict[str, Any]
_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789")


@dataclasses.dataclass(frozen=True, slots=True)
class Precision:
    """Digits of a decimal: total, and after the point."""

    digits: int
    scale: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class AvroType:
    """Another Avro type for a Python one: `Annotated[int, AvroType("int")]`."""

    schema: AvroSchema

    def __hash__(self) -> int:
        return hash(json.dumps(self.schema, sort_keys=True))  # unions of types hash their members


@dataclasses.dataclass(frozen=True, slots=True)
class Alias:
    """A former name of a field: `Annotated[str, Alias("old_name")]`. Records with it stay readable."""

    name: str


Int32: TypeAlias = typing.Annotated[int, AvroType("int")]
Float32: TypeAlias = typing.Annotated[float, AvroType("float")]

_SIMPLE: Final[Mapping[Any, AvroSchema]] = {
    type(None): "null",
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    dt.datetime: {"type": "long", "logicalType": "timestamp-micros"},
    dt.date: {"type": "int", "logicalType": "date"},
    dt.time: {"type": "long", "logicalType": "time-micros"},
    uuid.UUID: {"type": "string", "logicalType": "uuid"},
}


@dataclasses.dataclass(frozen=True, slots=True)
class Inferred:
    schema: AvroSchema
    names: Mapping[type, str]


def infer(kind: Any) -> AvroSchema:
    """Return the Avro schema of a type, as JSON values; raise `CannotInfer`."""
    return infer_named(kind).schema


def infer_named(kind: Any) -> Inferred:
    """Return the Avro schema as `infer`, with the names of classes."""
    inference = _Inference()
    schema = inference.schema(kind, getattr(kind, "__name__", str(kind)), "")
    return Inferred(schema, inference.names)


def branch(kind: Any, names: Mapping[type, str]) -> str:
    kind, extras = unwrap(kind)
    for extra in extras:
        if isinstance(extra, AvroType):
            return _branch_of(extra.schema)
    if inspect.isclass(kind) and kind in names:
        return names[kind]
    origin = typing.get_origin(kind)
    if kind is decimal.Decimal:
        return "bytes"
    if origin in {list, tuple}:
        return "array"
    if origin is dict:
        return "map"
    if origin is Literal:
        return "string"
    simple = _SIMPLE.get(kind, getattr(kind, "__name__", str(kind)))
    return _branch_of(simple)


def _branch_of(schema: AvroSchema) -> str:
    if isinstance(schema, str):
        return schema
    if isinstance(schema, list):
        return "union"
    name = schema.get("name")
    if name is None:
        return _branch_of(schema["type"])
    namespace = schema.get("namespace", "")
    return f"{namespace}.{name}" if namespace and "." not in name else str(name)


class _Inference:
    def __init__(self) -> None:
        self.names: dict[type, str] = {}

    def schema(self, kind: Any, at: str, space: str) -> AvroSchema:
        kind, extras = unwrap(kind)
        for extra in extras:
            if isinstance(extra, AvroType):
                return extra.schema
        if kind is decimal.Decimal:
            return self._decimal(extras, at)
        if isinstance(kind, type) and kind in _SIMPLE:
            simple = _SIMPLE[kind]
            return dict(simple) if isinstance(simple, dict) else simple
        union = members(kind)
        if union is not None:
            return self._union(union, type(None), at, space)
        return self._other(kind, at, space)

    def _union(self, union: tuple[Any, ...], first: Any, at: str, space: str) -> AvroSchema:
        ordered = sorted(union, key=lambda member: member is not first)
        branches = [self.schema(member, at, space) for member in ordered]
        taken: dict[str, Any] = {}
        dicts = [
            member for member in ordered if is_typed_dict(strip(member)) or typing.get_origin(strip(member)) is dict
        ]
        if len(dicts) > 1 and any(is_typed_dict(strip(member)) for member in dicts):
            raise CannotInfer(
                f"{at}: values of {' and '.join(_shown(member) for member in dicts)} are all dicts, so a value's class cannot be determined; "
                "use a dataclass for each"
            )
        for member in ordered:
            name = branch(member, self.names)
            if name in taken or name == "union":
                other = taken.get(name, "its members")
                raise CannotInfer(
                    f"{at}: {_shown(other)} and {_shown(member)} are both {name} in Avro, a union holds one of them; "
                    "put each into a dataclass of its own"
                )
            taken[name] = member
        return branches

    def _other(self, kind: Any, at: str, space: str) -> AvroSchema:
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is list or (origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis):
            return {"type": "array", "items": self.schema(arguments[0], at, space)}
        if origin is dict:
            if arguments[0] is not str:
                raise CannotInfer(f"{at}: the keys of an Avro map are strings; use dict[str, …]")
            return {"type": "map", "values": self.schema(arguments[1], at, space)}
        if origin is Literal and all(isinstance(argument, str) for argument in arguments):
            return "string"
        if inspect.isclass(kind) and issubclass(kind, enum.Enum):
            return self._enum(kind, at, space)
        if is_record(kind):
            return self._record(kind, at, space)
        raise CannotInfer(
            f"{at}: {_shown(kind)} has no Avro schema; use a dataclass, list[T], dict[str, T], an Enum, or Annotated[…, AvroType(…)]; or format='json'"
        )

    @staticmethod
    def _decimal(extras: tuple[Any, ...], at: str) -> AvroSchema:
        for extra in extras:
            if isinstance(extra, Precision):
                return {"type": "bytes", "logicalType": "decimal", "precision": extra.digits, "scale": extra.scale}
        raise CannotInfer(f"{at}: a Decimal needs its precision: Annotated[Decimal, Precision(12, 2)]")

    def _enum(self, kind: type[enum.Enum], at: str, space: str) -> AvroSchema:
        if kind in self.names:
            return self._mention(kind, at, space)
        symbols = [member.value for member in kind]
        if not symbols or not all(isinstance(symbol, str) and _is_name(symbol) for symbol in symbols):
            raise CannotInfer(
                f"{at}: the values of {kind.__name__} are not names; Avro symbols are letters, digits and _"
            )
        schema = self._named("enum", kind, at, space)[0] | {"symbols": symbols}
        default = getattr(kind, "__avro_default__", None)
        if default is not None:
            if default not in symbols:
                raise CannotInfer(
                    f"{at}: __avro_default__ of {kind.__name__} is {default!r}, which is none of its values"
                )
            schema["default"] = default
        return schema

    def _record(self, kind: type, at: str, space: str) -> AvroSchema:
        if kind in self.names:
            return self._mention(kind, at, space)
        schema, inside = self._named("record", kind, at, space)
        schema["fields"] = [self._field(field, f"{kind.__name__}.{field.name}", inside) for field in fields(kind)]
        return schema

    def _field(self, field: FieldType, at: str, space: str) -> dict[str, Any]:
        if not _is_name(field.name):
            raise CannotInfer(f"{at}: {field.name!r} is no name in Avro: letters of a to z, digits and _")
        kind, extras = unwrap(field.type)
        union = members(kind) if not any(isinstance(extra, AvroType) for extra in extras) else None
        if union is not None and field.default is not NO_DEFAULT and field.default is not None:
            # A default belongs to the first branch.
            schema = self._union(union, _member_of(field.default, union), at, space)
        else:
            schema = self.schema(field.type, at, space)
        schema_field: dict[str, Any] = {"name": field.name, "type": schema}
        if aliases := [extra.name for extra in extras if isinstance(extra, Alias)]:
            schema_field["aliases"] = aliases
        if field.default is not NO_DEFAULT:
            if field.default is None and schema != "null" and not (isinstance(schema, list) and schema[0] == "null"):
                raise CannotInfer(f"{at}: the default is None, so its type is {_shown(field.type)} | None")
            schema_field["default"] = _plain(field.default, at)
        return schema_field

    def _named(self, kind: str, cls: type, at: str, space: str) -> tuple[dict[str, Any], str]:
        own = getattr(cls, "__avro_namespace__", space)
        if not _is_name(cls.__name__):
            raise CannotInfer(f"{at}: {cls.__name__!r} is no name in Avro: letters of a to z, digits and _")
        name = f"{own}.{cls.__name__}" if own else cls.__name__
        for other, taken in self.names.items():
            if taken == name:
                raise CannotInfer(
                    f"{at}: two classes are called {name}, {other.__module__}.{other.__qualname__} is the other; "
                    "give one of them an __avro_namespace__"
                )
        self.names[cls] = name
        schema: dict[str, Any] = {"type": kind, "name": cls.__name__}
        if own != space:
            schema["namespace"] = own
        doc = cls.__dict__.get("__doc__")
        # A dataclass without a docstring gets its signature as one.
        if doc and not doc.startswith(f"{cls.__name__}("):
            schema["doc"] = inspect.cleandoc(doc)
        if aliases := getattr(cls, "__avro_aliases__", ()):
            schema["aliases"] = list(aliases)
        return schema, own

    def _mention(self, kind: type, at: str, space: str) -> str:
        name = self.names[kind]
        if "." not in name and space:
            raise CannotInfer(
                f"{at}: {name} is used inside and outside namespace {space}, where Avro cannot name it; "
                f"give {name} an __avro_namespace__"
            )
        return name


def _is_name(text: str) -> bool:
    return bool(text) and not set(text) - _NAME and not text[0].isdigit()


def _shown(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)


def _member_of(value: Any, union: tuple[Any, ...]) -> Any:
    for member in union:
        kind = unwrap(member)[0]
        if type(value) is (typing.get_origin(kind) or kind):
            return member
    for member in union:
        kind = typing.get_origin(unwrap(member)[0]) or unwrap(member)[0]
        kind = dict if is_typed_dict(kind) else kind
        if kind is Literal or (isinstance(kind, type) and isinstance(value, kind)):
            return member
    return union[0]


def _plain(value: Any, at: str) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, list | tuple):
        return [_plain(item, at) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item, at) for name, item in value.items()}
    if is_record(type(value)):
        return {field.name: _plain(getattr(value, field.name), at) for field in fields(type(value))}
    raise CannotInfer(
        f"{at}: the default {value!r} cannot be written into a schema; leave it out or make the field optional"
    )
