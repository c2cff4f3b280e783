"""A Python type → the Avro schema of its values.

What lives here: dataclasses, msgspec structs, enums, collections, optional and union types, logical types, defaults, docs. What does
not: encoding (`avro`). A class says its namespace with `__avro_namespace__` and former names with `__avro_aliases__`.

| Python | Avro |
|---|---|
| `None`, `bool`, `str`, `bytes` | null, boolean, string, bytes |
| `int`, `float` | long, double; `Int32` and `Float32` are int and float |
| `list[T]`, `dict[str, T]` | array, map |
| `T | None`, unions | union; null first when the default is None |
| dataclass, msgspec `Struct` | record; a field's default is the schema's |
| `enum.Enum` with string values, `Literal["a", "b"]` | enum, string |
| `datetime`, `date`, `time` | timestamp-micros, date, time-micros |
| `uuid.UUID` | uuid on string |
| `Annotated[Decimal, Precision(12, 2)]` | decimal on bytes |
"""

import dataclasses
import datetime as dt
import decimal
import enum
import inspect
import types
import typing
import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

AvroSchema: TypeAlias = str | list[Any] | dict[str, Any]


class CannotInfer(TypeError):
    """A type has no Avro schema; names the field and what to use instead."""


@dataclasses.dataclass(frozen=True, slots=True)
class Precision:
    """How many digits a decimal has, and how many of them after the point."""

    digits: int
    scale: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class AvroType:
    """Another Avro type for a Python one: `Annotated[int, AvroType("int")]`."""

    schema: AvroSchema


Int32: TypeAlias = Annotated[int, AvroType("int")]
Float32: TypeAlias = Annotated[float, AvroType("float")]

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
_NO_DEFAULT: Final = object()


def infer(kind: Any) -> AvroSchema:
    """The Avro schema of a type, as JSON values.

    Raises:
        CannotInfer: the type, or that of a field, has none.
    """
    return _Inference().schema(kind, getattr(kind, "__name__", str(kind)))


def is_record(kind: Any) -> bool:
    """Whether values of this type become Avro records."""
    return inspect.isclass(kind) and (dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct))


def full_name(kind: type) -> str:
    """The Avro name of a class."""
    namespace = getattr(kind, "__avro_namespace__", "")
    return f"{namespace}.{kind.__name__}" if namespace else kind.__name__


def members(kind: Any) -> tuple[Any, ...] | None:
    """The members of a union type; None for any other."""
    if typing.get_origin(kind) in {typing.Union, types.UnionType}:
        return typing.get_args(kind)
    return None


def strip(kind: Any) -> Any:
    """The type without `Annotated`."""
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind


@dataclasses.dataclass(frozen=True, slots=True)
class FieldType:
    """A field of a record class."""

    name: str
    type: Any
    default: Any


def fields(kind: type) -> list[FieldType]:
    """The fields of a dataclass or struct, with their annotations resolved."""
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except NameError as problem:
        raise CannotInfer(
            f"{kind.__name__}: {problem}; its annotations must be importable where the class is"
        ) from None
    found = []
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            if not field.init:
                continue
            default = field.default if field.default is not dataclasses.MISSING else _NO_DEFAULT
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            found.append(FieldType(field.name, hints[field.name], default))
        return found
    for one in msgspec.structs.fields(kind):
        default = one.default if one.default is not msgspec.NODEFAULT else _NO_DEFAULT
        if one.default_factory is not msgspec.NODEFAULT:
            default = one.default_factory()
        found.append(FieldType(one.name, hints[one.name], default))
    return found


class _Inference:
    def __init__(self) -> None:
        self._defined: dict[str, type] = {}

    def schema(self, kind: Any, at: str) -> AvroSchema:
        extras: tuple[Any, ...] = ()
        if typing.get_origin(kind) is Annotated:
            kind, *found = typing.get_args(kind)
            extras = tuple(found)
        for extra in extras:
            if isinstance(extra, AvroType):
                return extra.schema
        if kind is decimal.Decimal:
            return self._decimal(extras, at)
        if kind in _SIMPLE:
            simple = _SIMPLE[kind]
            return dict(simple) if isinstance(simple, dict) else simple
        union = members(kind)
        if union is not None:
            return [self.schema(one, at) for one in sorted(union, key=lambda one: one is not type(None))]
        return self._other(kind, at)

    def _other(self, kind: Any, at: str) -> AvroSchema:
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is list or (origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis):
            return {"type": "array", "items": self.schema(arguments[0], at)}
        if origin is dict:
            if arguments[0] is not str:
                raise CannotInfer(f"{at}: the keys of an Avro map are strings; use dict[str, …]")
            return {"type": "map", "values": self.schema(arguments[1], at)}
        if origin is Literal and all(isinstance(one, str) for one in arguments):
            return "string"
        if inspect.isclass(kind) and issubclass(kind, enum.Enum):
            return self._enum(kind, at)
        if is_record(kind):
            return self._record(kind)
        raise CannotInfer(
            f"{at}: {kind!r} has no Avro schema; use a dataclass, list[T], dict[str, T], an Enum, or Annotated[…, AvroType(…)]"
        )

    @staticmethod
    def _decimal(extras: tuple[Any, ...], at: str) -> AvroSchema:
        for extra in extras:
            if isinstance(extra, Precision):
                return {"type": "bytes", "logicalType": "decimal", "precision": extra.digits, "scale": extra.scale}
        raise CannotInfer(f"{at}: a Decimal needs its precision: Annotated[Decimal, Precision(12, 2)]")

    def _enum(self, kind: type[enum.Enum], at: str) -> AvroSchema:
        name = full_name(kind)
        if self._known(name, kind, at):
            return name
        symbols = [member.value for member in kind]
        if not all(isinstance(symbol, str) and symbol.isidentifier() and symbol.isascii() for symbol in symbols):
            raise CannotInfer(
                f"{at}: the values of {kind.__name__} are not names; Avro symbols are letters, digits and _"
            )
        return _named("enum", kind) | {"symbols": symbols}

    def _record(self, kind: type) -> AvroSchema:
        name = full_name(kind)
        if self._known(name, kind, name):
            return name
        found = _named("record", kind)
        found["fields"] = [self._field(one, f"{kind.__name__}.{one.name}") for one in fields(kind)]
        return found

    def _field(self, field: FieldType, at: str) -> dict[str, Any]:
        schema = self.schema(field.type, at)
        found: dict[str, Any] = {"name": field.name, "type": schema}
        if field.default is not _NO_DEFAULT:
            if isinstance(schema, list) and field.default is not None:
                # A default belongs to the first branch.
                found["type"] = sorted(schema, key=lambda branch: branch == "null")
            found["default"] = _plain(field.default, at)
        return found

    def _known(self, name: str, kind: type, at: str) -> bool:
        if name not in self._defined:
            self._defined[name] = kind
            return False
        if self._defined[name] is not kind:
            raise CannotInfer(f"{at}: two classes are called {name}; give one of them an __avro_namespace__")
        return True


def _named(kind: str, cls: type) -> dict[str, Any]:
    found: dict[str, Any] = {"type": kind, "name": cls.__name__}
    if namespace := getattr(cls, "__avro_namespace__", ""):
        found["namespace"] = namespace
    doc = cls.__dict__.get("__doc__")
    # A dataclass without a docstring gets its signature as one.
    if doc and not doc.startswith(f"{cls.__name__}("):
        found["doc"] = inspect.cleandoc(doc)
    if aliases := getattr(cls, "__avro_aliases__", ()):
        found["aliases"] = list(aliases)
    return found


def _plain(value: Any, at: str) -> Any:
    """A default as the JSON of a schema."""
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, list | tuple):
        return [_plain(one, at) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one, at) for name, one in value.items()}
    if is_record(type(value)):
        return {one.name: _plain(getattr(value, one.name), at) for one in fields(type(value))}
    raise CannotInfer(
        f"{at}: the default {value!r} cannot be written into a schema; leave it out or make the field optional"
    )
