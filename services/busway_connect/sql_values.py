"""Fields of Connect's data model as columns: type and value.

Here: schemas → SQLAlchemy types, wire forms (days, microseconds, unscaled bytes) → Python's dates and decimals.
Not here: tables (`sql_tables`).
"""

import datetime as dt
import decimal
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import types

from busway_connect.decimals import DECIMAL, decimal_from_bytes, scale_of
from busway_connect.postgres.values import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    INT64_MAX,
    INT64_MIN,
    TIMESTAMP_INFINITY_MS,
    TIMESTAMP_MINUS_INFINITY_MS,
)
from busway_connect.schema import Schema

Kind = types.TypeEngine[Any]
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - without a zone, like these types
_DAY_ZERO: Final = dt.date(1970, 1, 1)
_PRECISION_MAX: Final = 1000
"""Of PostgreSQL's `numeric(precision, scale)`."""
_VARIABLE: Final = "io.debezium.data.VariableScaleDecimal"


def _date(days: int) -> dt.date:
    return _DAY_ZERO + dt.timedelta(days=days)


def _moment(per_second: int) -> Callable[[int], dt.datetime]:
    return lambda count: _EPOCH + dt.timedelta(microseconds=count * 1_000_000 // per_second)


def _time(per_second: int) -> Callable[[int], dt.time]:
    def read(count: int) -> dt.time:
        if not 0 <= count < 86_400 * per_second:
            raise ValueError(f"{count} is no time of a day")  # 24:00 of PostgreSQL, which would become 00:00
        return (_EPOCH + dt.timedelta(microseconds=count * 1_000_000 // per_second)).time()

    return read


def _zoned(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


_NAMED: Final[Mapping[str, tuple[Kind, Callable[[Any], Any]]]] = {
    "org.apache.kafka.connect.data.Date": (types.Date(), _date),
    "org.apache.kafka.connect.data.Time": (types.Time(), _time(1_000)),
    "org.apache.kafka.connect.data.Timestamp": (types.DateTime(), _moment(1_000)),
    "io.debezium.time.Date": (types.Date(), _date),
    "io.debezium.time.Time": (types.Time(), _time(1_000)),
    "io.debezium.time.MicroTime": (types.Time(), _time(1_000_000)),
    "io.debezium.time.NanoTime": (types.Time(), _time(1_000_000_000)),
    "io.debezium.time.Timestamp": (types.DateTime(), _moment(1_000)),
    "io.debezium.time.MicroTimestamp": (types.DateTime(), _moment(1_000_000)),
    "io.debezium.time.NanoTimestamp": (types.DateTime(), _moment(1_000_000_000)),
    "io.debezium.time.ZonedTimestamp": (types.DateTime(timezone=True), _zoned),
}
_PER_DAY: Final[Mapping[str, int]] = {
    name: 86_400 * (1_000_000_000 if "Nano" in name else 1_000_000 if "Micro" in name else 1_000)
    for name, (kind, _) in _NAMED.items()
    if isinstance(kind, types.DateTime | types.Time) and not name.endswith("ZonedTimestamp")
}
_INFINITIES: Final[Mapping[str, Mapping[int, str]]] = {
    "io.debezium.time.Date": {DATE_INFINITY: "infinity", DATE_MINUS_INFINITY: "-infinity"},
    "io.debezium.time.Timestamp": {
        TIMESTAMP_INFINITY_MS: "infinity",
        TIMESTAMP_MINUS_INFINITY_MS: "-infinity",
    },
    "io.debezium.time.MicroTimestamp": {INT64_MAX: "infinity", INT64_MIN: "-infinity"},
}
_YEAR: Final = re.compile(r"([+-]?\d{4,})(-.*)")


def _day_text(days: int) -> str:
    """Format a day of any year without PostgreSQL's suffix BC."""
    cycles, rest = divmod(days + _DAY_ZERO.toordinal() - 1, 146_097)  # the calendar repeats after 400 years
    day = dt.date.fromordinal(rest + 1)
    year = day.year + 400 * cycles
    return f"{year if year > 0 else 1 - year:04d}-{day:%m-%d}"


def _beyond_python(name: str, value: Any) -> str | None:
    """Return PostgreSQL's text of values outside Python's types (infinities, far years, 24:00), or None."""
    if isinstance(value, str):
        if value.endswith("infinity"):
            return value
        match = _YEAR.fullmatch(value)
        if match is None or 1 <= int(match[1]) <= 9999:
            return None
        year = int(match[1])
        return f"{year if year > 0 else 1 - year:04d}{match[2]}{'' if year > 0 else ' BC'}"
    if (text := _INFINITIES.get(name, {}).get(value)) is not None:
        return text
    per_day = _PER_DAY.get(name, 1)
    if isinstance(_NAMED[name][0], types.Time):
        return "24:00:00" if value == per_day else None
    days, rest = divmod(value, per_day)
    if -719_162 <= days <= 2_932_896:  # the years 1 to 9999
        return None
    before = " BC" if days < -719_162 else ""
    if per_day == 1:
        return f"{_day_text(days)}{before}"
    micros = rest * 86_400_000_000 // per_day
    return f"{_day_text(days)} {(_EPOCH + dt.timedelta(microseconds=micros)).time()}{before}"


_PLAIN: Final[Mapping[str, Kind]] = {
    "int8": types.SmallInteger(),
    "int16": types.SmallInteger(),
    "int32": types.Integer(),
    "int64": types.BigInteger(),
    "float32": types.REAL(),
    "float64": types.Double(),
    "boolean": types.Boolean(),
    "string": types.Text(),
    "bytes": types.LargeBinary(),
}


def column_type(schema: Schema | None, value: Any, dialect: str) -> Kind:
    """Return a field's column type; without a schema by the first value."""
    if schema is None:
        return _type_of(value, dialect)
    if schema.name is not None and schema.name in _NAMED:
        return _NAMED[schema.name][0]
    if schema.name == DECIMAL:
        return _exact_type(dialect, dict(schema.parameters).get("connect.decimal.precision"), scale_of(schema))
    if schema.name == _VARIABLE:
        return _exact_type(dialect)
    return _PLAIN.get(schema.type, types.Text())


def _exact_type(dialect: str, precision: str | None = None, scale: int = 0) -> Kind:
    """Return the numeric type; without a precision unlimited, as a guess could refuse or round values."""
    if dialect == "sqlite":
        return types.Text()  # SQLite would store a float
    if precision is None or not precision.isdecimal() or not 0 <= scale <= int(precision) <= _PRECISION_MAX:
        return types.Numeric()
    return types.Numeric(int(precision), scale)


def _type_of(value: Any, dialect: str) -> Kind:
    if isinstance(value, bool):
        return types.Boolean()
    if isinstance(value, int):
        return types.BigInteger()
    if isinstance(value, float):
        return types.Double()
    if isinstance(value, decimal.Decimal):
        return _exact_type(dialect)
    return types.LargeBinary() if isinstance(value, bytes) else types.Text()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An array: elements for an array column, JSON for a text column."""

    items: list[Any]
    text: str


def _json(value: Any) -> str:
    """Return strict JSON: bytes in hexadecimal. NaN, infinities, decimals, dates and times as strings."""
    return json.dumps(
        _finite(value), ensure_ascii=False, default=lambda item: item.hex() if isinstance(item, bytes) else str(item)
    )


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def column_value(schema: Schema | None, value: Any, dialect: str) -> Any:
    """Return the value for the driver, or `Listed`.

    Raises:
        ValueError, TypeError, OverflowError: it does not fit its schema.
    """
    if value is None:
        return None
    if schema is not None:
        if schema.name is not None and schema.name in _NAMED:
            if dialect == "postgresql" and (text := _beyond_python(schema.name, value)) is not None:
                return text
            return _NAMED[schema.name][1](value)
        if schema.name == DECIMAL:
            return _exact(decimal_from_bytes(value, scale_of(schema)), dialect)
        if schema.name == _VARIABLE:
            return _exact(decimal_from_bytes(value["value"], value["scale"]), dialect)
        if schema.type in {"int8", "int16", "int32", "int64"} and (
            isinstance(value, bool) or not isinstance(value, int)
        ):
            raise ValueError(f"{value!r:.80} is no {schema.type}")
    if isinstance(value, decimal.Decimal):
        return _exact(value, dialect)
    if isinstance(value, float) and math.isnan(value) and dialect == "sqlite":
        raise ValueError("SQLite has no NaN and would store NULL")
    if isinstance(value, Mapping):
        return _json(value)
    if isinstance(value, list | tuple):
        inner = None if schema is None else schema.value_schema
        items = [column_value(inner, item, dialect) for item in value]
        items = [item.items if isinstance(item, Listed) else item for item in items]
        return Listed(items=items, text=_json(items))
    return value


def _exact(value: decimal.Decimal, dialect: str) -> Any:
    return format(value, "f") if dialect == "sqlite" else value


def unavailable(placeholder: str) -> list[Any]:
    """Return Debezium's `unavailable.value.placeholder` in the forms of different types."""
    data = placeholder.encode()
    pair = {placeholder: placeholder}
    text = json.dumps(pair, ensure_ascii=False, separators=(",", ":"))
    return [placeholder, data, [placeholder], [data], list(data), pair, text]
