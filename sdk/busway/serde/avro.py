"""Typed values ↔ Avro bodies.

What lives here: one function made for each class that turns its values into what fastavro writes, and one back; a cache of
(writer, reader) pairs. What does not: the schema of a class (`infer`), ids (`registered`).
"""

import datetime as dt
import decimal
import enum
import io
import json
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Literal, TypeVar, cast

import fastavro
from fastavro.schema import SchemaParseException

from busway.serde.infer import AvroSchema, fields, full_name, infer, is_record, members, strip

T = TypeVar("T")
_Convert = Callable[[Any], Any]
_AS_IT_IS: Final = (
    type(None), bool, int, float, str, bytes, dt.datetime, dt.date, dt.time, uuid.UUID, decimal.Decimal, Any,
)  # fmt: skip


class Undecodable(ValueError):
    """Bytes cannot be read as a value of the wanted type; says why."""


class Unencodable(ValueError):
    """A value does not fit its schema; names the field and the type."""


class AvroCodec(Generic[T]):
    """Avro bodies of values of one type.

    Args:
        kind: a dataclass, a struct or any type that `infer` takes; `dict` with a `schema` of its own leaves values plain.
        schema: the Avro schema, where it is not the one of `kind`.

    Raises:
        CannotInfer: `kind` has no schema.
    """

    def __init__(self, kind: type[T], schema: AvroSchema | None = None) -> None:
        self.kind = kind
        self.schema: AvroSchema = schema if schema is not None else infer(kind)
        self.schema_text = json.dumps(self.schema, ensure_ascii=False, separators=(",", ":"))
        self._parsed = fastavro.parse_schema(json.loads(self.schema_text))
        plain = schema is not None and not is_record(kind)
        self._out: _Convert | None = None if plain else _outward(kind, {})
        self._in: _Convert | None = None if plain else _inward(kind, {})
        self._writers: dict[int, Any] = {}

    @property
    def name(self) -> str:
        """The full name of the record, or the name of the type."""
        if isinstance(self.schema, dict):
            name = str(self.schema.get("name", self.schema["type"]))
            namespace = self.schema.get("namespace")
            return f"{namespace}.{name}" if namespace and "." not in name else name
        return "union" if isinstance(self.schema, list) else self.schema

    def encode(self, value: T, prefix: bytes = b"") -> bytes:
        """The body, after `prefix`.

        Raises:
            Unencodable: the value does not fit the schema.
        """
        out = io.BytesIO()
        out.write(prefix)
        try:
            plain: Any = value if self._out is None else self._out(value)
            fastavro.schemaless_writer(out, self._parsed, plain)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, decimal.DecimalException) as problem:
            raise Unencodable(f"{value!r:.200} does not fit {self.name}: {problem or type(problem).__name__}") from None
        return out.getvalue()

    def add_writer(self, schema_id: int, text: str) -> None:
        """Make bodies readable that were written under this id with this schema.

        Raises:
            Undecodable: it is no Avro schema.
        """
        try:
            self._writers[schema_id] = fastavro.parse_schema(json.loads(text))
        except (SchemaParseException, ValueError) as problem:
            raise Undecodable(f"schema {schema_id} cannot be used: {problem}") from None

    def knows(self, schema_id: int) -> bool:
        """Whether bodies of this id can be read."""
        return schema_id in self._writers

    def decode(self, data: bytes | memoryview, schema_id: int, start: int = 0) -> T:
        """The value in a body that begins at `start`, written with the schema of this id and read as the type's own.

        Raises:
            Undecodable: the body is damaged, or the schemas do not go together.
        """
        writer = self._writers[schema_id]
        source = io.BytesIO(data)
        source.seek(start)
        try:
            plain = fastavro.schemaless_reader(source, writer, self._parsed, return_record_name=True)
            if source.read(1):
                raise Undecodable(f"bytes are left over after the {self.name} written with schema {schema_id}")
            found: Any = plain if self._in is None else self._in(plain)
        except Undecodable:
            raise
        except Exception as problem:  # noqa: BLE001 - a damaged body makes fastavro raise nearly anything
            raise Undecodable(
                f"the body written with schema {schema_id} cannot be read as {self.name}: {problem or type(problem).__name__}"
            ) from None
        return cast("T", found)


def _outward(kind: Any, made: dict[Any, _Convert | None]) -> _Convert | None:
    """How values of `kind` become what fastavro writes; None for as they are."""
    kind = strip(kind)
    if kind in made:
        return lambda value: made[kind](value) if made[kind] is not None else value  # type: ignore[misc]
    if kind in _AS_IT_IS or typing.get_origin(kind) is Literal:
        return None
    union = members(kind)
    if union is not None:
        return _outward_union(union, made)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {list, tuple}:
        item = _outward(arguments[0], made)
        return list if item is None else lambda value: [item(one) for one in value]
    if origin is dict:
        part = _outward(arguments[1], made)
        return None if part is None else lambda value: {name: part(one) for name, one in value.items()}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return lambda value: value.value
    if not is_record(kind):
        return None
    made[kind] = None
    made[kind] = _outward_record(kind, made)
    return made[kind]


def _outward_record(kind: type, made: dict[Any, _Convert | None]) -> _Convert:
    converts = {one.name: _outward(one.type, made) for one in fields(kind)}
    # One dictionary display is several times faster than a loop over the fields.
    parts = (f"{name!r}: " + (f"c_{name}(v.{name})" if convert else f"v.{name}") for name, convert in converts.items())
    scope: dict[str, Any] = {f"c_{name}": convert for name, convert in converts.items() if convert}
    made_function: _Convert = eval(f"lambda v: {{{', '.join(parts)}}}", scope)  # noqa: S307 - made of field names of a class
    return made_function


def _outward_union(union: tuple[Any, ...], made: dict[Any, _Convert | None]) -> _Convert | None:
    by_class: dict[type, _Convert] = {}
    for one in map(strip, union):
        convert = _outward(one, made)
        if is_record(one):
            assert convert is not None
            by_class[one] = _tagged(full_name(one), convert)
        elif convert is not None:
            target = typing.get_origin(one) or one
            by_class[target] = convert
    if not by_class:
        return None

    def convert_one(value: Any) -> Any:
        found = by_class.get(type(value))
        return value if found is None else found(value)

    return convert_one


def _tagged(name: str, convert: _Convert) -> _Convert:
    return lambda value: (name, convert(value))


def _inward(kind: Any, made: dict[Any, _Convert | None]) -> _Convert | None:
    """How what fastavro read becomes a value of `kind`; None for as it is."""
    kind = strip(kind)
    if kind in made:
        return lambda value: made[kind](value) if made[kind] is not None else value  # type: ignore[misc]
    if kind in _AS_IT_IS or typing.get_origin(kind) is Literal:
        return None
    union = members(kind)
    if union is not None:
        return _inward_union(union, made)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {list, tuple}:
        item = _inward(arguments[0], made)
        if item is None:
            return None if origin is list else tuple
        return lambda value: origin(item(one) for one in value)
    if origin is dict:
        part = _inward(arguments[1], made)
        return None if part is None else lambda value: {name: part(one) for name, one in value.items()}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind
    if not is_record(kind):
        return None
    made[kind] = None
    made[kind] = _inward_record(kind, made)
    return made[kind]


def _inward_record(kind: type, made: dict[Any, _Convert | None]) -> _Convert:
    converts = {one.name: found for one in fields(kind) if (found := _inward(one.type, made)) is not None}
    if not converts:
        return lambda value: kind(**value)

    def convert(value: Mapping[str, Any]) -> Any:
        return kind(**{name: converts[name](part) if name in converts else part for name, part in value.items()})

    return convert


def _inward_union(union: tuple[Any, ...], made: dict[Any, _Convert | None]) -> _Convert | None:
    records: dict[str, _Convert] = {}
    other: _Convert | None = None
    lists: _Convert | None = None
    for one in map(strip, union):
        convert = _inward(one, made)
        if is_record(one):
            assert convert is not None
            records[full_name(one)] = convert
        elif typing.get_origin(one) in {list, tuple}:
            lists = convert
        elif convert is not None:
            other = convert

    def convert_one(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, tuple):  # (name of the record, its fields)
            return records[value[0]](value[1])
        if isinstance(value, dict) and len(records) == 1 and other is None:
            return next(iter(records.values()))(value)
        if isinstance(value, list):
            return value if lists is None else lists(value)
        return other(value) if other is not None and not isinstance(value, int | float | bytes) else value

    return convert_one if records or other or lists else None
