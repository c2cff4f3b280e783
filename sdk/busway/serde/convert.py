"""Conversion functions between a type's values and fastavro's, built once per type.

Not here: schemas (`infer`), bytes (`avro`).

A union's value is written with its branch name, so nothing is guessed: 1 in `float | int` stays an int, a `datetime` in
`date | datetime` keeps its time. Read values are distinguished by that name (bodies of the own schema), or by the class
that the reader schema adds to each record (any other; see `avro`).
"""

import datetime as dt
import decimal
import enum
import math
import operator
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from busway.serde.infer import AvroType, branch
from busway.serde.records import droppable, fields, is_model, is_record, is_typed_dict, members, strip, unwrap

Convert = Callable[[Any], Any]
CLASS_OF: Final = "busway class"
"""The field with a record's class in a reader schema; not a legal Avro name."""
USE_DEFAULT: Final = object()
"""The reader schema's value for a field that the writer lacked."""
_INT32: Final = range(-(2**31), 2**31)
_FLOAT32_MAX: Final = 3.4028235677973366e38
_AS_THEY_ARE: Final = frozenset({type(None), bool, int, float, str, bytes})
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
Names = Mapping[type, str]


def _later(made: Mapping[type, Convert], kind: type) -> Convert:
    def convert(value: Any) -> Any:
        return made[kind](value)

    return convert


# Outward


def outward(kind: Any, names: Names) -> Convert | None:
    """Return the conversion of `kind` to fastavro's values; None for none needed."""
    return _Outward(names).convert(kind)


class _Outward:
    def __init__(self, names: Names) -> None:
        self._names = names
        self._made: dict[type, Convert] = {}

    def convert(self, hint: Any) -> Convert | None:
        kind, extras = unwrap(hint)
        for extra in extras:
            if isinstance(extra, AvroType):
                return _NARROW.get(extra.schema) if isinstance(extra.schema, str) else None
        union = members(kind)
        if union is not None:
            return self._union(union)
        if kind is dt.datetime:
            return _aware
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin in {list, tuple}:
            item = self.convert(arguments[0])
            return list if item is None else lambda value: [item(element) for element in value]
        if origin is dict:
            part = self.convert(arguments[1])
            return None if part is None else lambda value: {name: part(content) for name, content in value.items()}
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return operator.attrgetter("value")
        if is_record(kind):
            if kind not in self._made:
                self._made[kind] = _later(self._made, kind)
                self._made[kind] = self._record(kind)
            return self._made[kind]
        return None

    def _record(self, kind: type) -> Convert:
        names = [field.name for field in fields(kind)]
        converts = [
            (field.name, conversion) for field in fields(kind) if (conversion := self.convert(field.type)) is not None
        ]
        if not names:
            return lambda value: {}
        if is_typed_dict(kind):
            return _from_keys(kind, names, converts)
        get = operator.attrgetter(*names)

        def convert(value: Any) -> dict[str, Any]:
            record = dict(zip(names, get(value) if len(names) > 1 else (get(value),), strict=True))
            for name, conversion in converts:
                record[name] = conversion(record[name])
            return record

        return convert

    def _union(self, union: tuple[Any, ...]) -> Convert:
        table: dict[type, tuple[str, Convert | None]] = {}
        for member in union:
            kind = strip(member)
            target = str if typing.get_origin(kind) is typing.Literal else typing.get_origin(kind) or kind
            target = dict if is_typed_dict(kind) else target
            table[target] = (branch(member, self._names), self.convert(member))

        def convert(value: Any) -> tuple[str, Any]:
            entry = table.get(type(value)) or _nearest(table, value)
            name, part = entry
            return name, value if part is None else part(value)

        return convert


def _from_keys(kind: Any, names: list[str], converts: list[tuple[str, Convert]]) -> Convert:
    needed, allowed = kind.__required_keys__, frozenset(names)

    def convert(value: Any) -> dict[str, Any]:
        record = dict(value)
        if not needed <= record.keys() or not record.keys() <= allowed:
            wrong = sorted(needed - record.keys()) or sorted(record.keys() - allowed)
            raise ValueError(f"the keys of {kind.__name__} are others: {', '.join(map(str, wrong))}")
        for name, conversion in converts:
            if name in record:
                record[name] = conversion(record[name])
        return record

    return convert


def _nearest(table: Mapping[type, tuple[str, Convert | None]], value: Any) -> tuple[str, Convert | None]:
    for kind in type(value).__mro__:
        if kind in table:
            return table[kind]
    if isinstance(value, int) and not isinstance(value, bool) and float in table:
        return table[float]
    if isinstance(value, tuple) and list in table:
        return table[list]
    if isinstance(value, list) and tuple in table:
        return table[tuple]
    raise ValueError(f"{value!r:.80} is {type(value).__name__}, none of {', '.join(kind.__name__ for kind in table)}")


def _int32(value: Any) -> Any:
    if value not in _INT32:
        raise ValueError(f"{value!r:.80} does not fit 32 bits")
    return value


def _float32(value: Any) -> Any:
    if _FLOAT32_MAX < abs(value) < math.inf:
        raise ValueError(f"{value!r} does not fit a float of 32 bits")
    return value


_NARROW: Final[Mapping[str, Convert]] = {"int": _int32, "float": _float32}


def _aware(value: dt.datetime) -> dt.datetime:
    if value.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone; a moment has one, such as datetime.UTC")
    return value


# Inward


def inward(kind: Any, names: Names, *, own: bool) -> Convert | None:
    """Return the conversion of fastavro's values to `kind`; None for none needed.

    If `own`, written with the schema of `kind`: nothing is missing, and branches are named.
    """
    return _Inward(names, own=own).convert(kind)


class _Inward:
    def __init__(self, names: Names, *, own: bool) -> None:
        self._names = names
        self._own = own
        self._made: dict[type, Convert] = {}

    def convert(self, hint: Any) -> Convert | None:
        kind, extras = unwrap(hint)
        for extra in extras:
            if isinstance(extra, AvroType):
                return None
        union = members(kind)
        if union is not None:
            return self._union(union)
        if kind in _FROM_PLAIN:
            return None if self._own else _from_plain(kind, hint)
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin in {list, tuple}:
            item = self.convert(arguments[0])
            if item is None:
                return None if origin is list else tuple
            return lambda value: origin(map(item, value))
        if origin is dict:
            part = self.convert(arguments[1])
            return None if part is None else lambda value: {name: part(content) for name, content in value.items()}
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return _member_of(kind)
        if is_record(kind):
            if kind not in self._made:
                self._made[kind] = _later(self._made, kind)
                self._made[kind] = self._record(kind)
            return self._made[kind]
        return None

    def _record(self, kind: type) -> Convert:
        converts = [
            (field.name, conversion) for field in fields(kind) if (conversion := self.convert(field.type)) is not None
        ]
        make = _maker(kind)

        def convert(value: dict[str, Any]) -> Any:
            for name, conversion in converts:
                value[name] = conversion(value[name])
            return make(value)

        def complete(value: dict[str, Any]) -> Any:
            present = {name: part for name, part in value.items() if part is not USE_DEFAULT and name != CLASS_OF}
            for name, conversion in converts:
                if name in present:
                    present[name] = conversion(present[name])
            return make(present)

        return convert if self._own else complete

    def _union(self, union: tuple[Any, ...]) -> Convert | None:
        if all(isinstance(member, type) and member in _AS_THEY_ARE for member in union):
            return None
        named: dict[str, Convert | None] = {}
        records: dict[type, Convert] = {}
        by_type: dict[type, Convert | None] = {}
        enums: list[Any] = []
        for member in union:
            kind, convert = strip(member), self.convert(member)
            if is_record(kind) and convert is not None:
                named[branch(member, self._names)] = records[kind] = convert
            elif isinstance(kind, type) and issubclass(kind, enum.Enum):
                named[branch(member, self._names)] = convert
                enums.append(kind)
            else:
                origin = typing.get_origin(kind)
                by_type[list if origin is tuple else origin or kind] = convert
        if not self._own:
            self._add_plain(by_type)

        def choose(value: Any) -> Any:
            if isinstance(value, tuple):  # (name of the branch, value)
                name, value = value
                convert = named.get(name)
                return value if convert is None else convert(value)
            if isinstance(value, dict) and CLASS_OF in value:
                return records[value[CLASS_OF]](value)
            if enums and isinstance(value, str):
                value = _enum_of(value, enums, plain=str in by_type)
            convert = by_type.get(type(value))
            return value if convert is None else convert(value)

        return choose

    @staticmethod
    def _add_plain(by_type: dict[type, Convert | None]) -> None:
        candidates: dict[type, list[type]] = {}
        for kind in by_type:
            if (plain := _PLAIN_OF.get(kind)) is not None and plain not in by_type:
                candidates.setdefault(plain, []).append(kind)
        for plain, kinds in candidates.items():
            by_type[plain] = by_type[kinds[0]] if len(kinds) == 1 else _either_of(kinds)


def _either_of(kinds: list[type]) -> Convert:
    def refuse(value: Any) -> Any:
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"{value!r:.80} was written without a logical type, so it may be {names}")

    return refuse


def _maker(kind: Any) -> Convert:
    if is_model(kind):
        return lambda values: kind.model_validate(values, by_name=True)
    if not is_typed_dict(kind):
        return lambda values: kind(**values)
    if not (absent := droppable(kind)):
        return dict
    return lambda values: {name: value for name, value in values.items() if value is not None or name not in absent}


def _member_of(kind: Any) -> Convert:
    """Find the enum member of a value. Other values go to the class, whose `_missing_` may take them."""
    members_by_value = kind._value2member_map_

    def member(value: Any) -> Any:
        known = members_by_value.get(value)
        return kind(value) if known is None else known

    return member


def _enum_of(value: str, enums: list[Any], *, plain: bool) -> Any:
    for enum_class in enums:
        if value in enum_class._value2member_map_:
            return enum_class(value)
    if plain:
        return value
    raise ValueError(f"{value!r:.80} is none of the values of {', '.join(enum_class.__name__ for enum_class in enums)}")


_PLAIN_OF: Final[Mapping[type, type]] = {
    dt.datetime: int,
    dt.date: int,
    dt.time: int,
    uuid.UUID: str,
    decimal.Decimal: bytes,
}
_FROM_PLAIN: Final[Mapping[Any, Callable[[Any], Any]]] = {
    dt.datetime: lambda value: _EPOCH + dt.timedelta(microseconds=value),
    dt.date: lambda value: _EPOCH.date() + dt.timedelta(days=value),
    dt.time: lambda value: (_EPOCH + dt.timedelta(microseconds=value)).time(),
    uuid.UUID: uuid.UUID,
    decimal.Decimal: lambda value: value,
}


def _from_plain(kind: Any, hint: Any) -> Convert:
    make = _FROM_PLAIN[kind]
    if kind is decimal.Decimal:
        scale = next(extra.scale for extra in unwrap(hint)[1] if hasattr(extra, "scale"))
        make = lambda value: decimal.Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale)  # noqa: E731 - as short as its neighbours
    return lambda value: value if isinstance(value, kind) else make(value)
