"""Text of PostgreSQL's output functions → Debezium's values.

Here: pure functions for text under the settings of `catalog.SESSION`.
Not here: choosing one for a column (`columns`), geometry (`geometry`).
"""

import datetime as dt
import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
DATE_INFINITY: Final = 2_146_033_979
"""Debezium's stream value of the date `infinity`."""
DATE_MINUS_INFINITY: Final = -2_147_472_691
TIMESTAMP_INFINITY_MS: Final = 9_223_372_036_825_200_000
TIMESTAMP_MINUS_INFINITY_MS: Final = -9_223_372_036_832_400_000
_MONTH_US: Final = 2_629_800_000_000
"""A month of an interval: a twelfth of 365.25 days."""
_DAY_US: Final = 86_400_000_000
_NOT_FINITE: Final = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}
_LONG_NUMBER: Final = 4_000
"""Python parses at most 4,300 digits as an int; longer ones go through Decimal."""
_TIMESTAMP: Final = re.compile(r"(\d+)-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d+))?)?(?:\+00)?( BC)?")
_TIME: Final = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?)?")
_INTERVAL_PART: Final = re.compile(r"([+-]?\d+) (year|mon|day)s?")
_INTERVAL_TIME: Final = re.compile(r"([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?$")
_HSTORE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)(?:, |$)', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ARRAY_TOKEN: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([{}])|([^{},"\\]+)|,', re.DOTALL)

MONEY_DIGITS: Final = 2


class NotANumber(ValueError):
    """NaN or an infinity, for which `decimal.handling.mode=precise` has no value."""


def boolean(text: str) -> bool:
    return text == "t"


def binary(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def whole(text: str) -> int:
    return int(text) if len(text) < _LONG_NUMBER else int(Decimal(text))


def twos_complement(number: int) -> bytes:
    """Return a signed number's fewest big-endian bytes, like Java's `BigInteger.toByteArray`."""
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def _finite(text: str) -> str:
    if text[-1] not in "0123456789":
        raise NotANumber(text)
    return text


def decimal_of(scale: int) -> Callable[[str], bytes]:
    """For `numeric` with this scale: return the unscaled bytes of Connect's Decimal."""

    def read(text: str) -> bytes:
        digits, _, fraction = _finite(text).partition(".")
        if len(fraction) > scale:
            raise ValueError(f"{text} has more than {scale} digits behind the point")
        return twos_complement(whole(digits + fraction.ljust(scale, "0")))

    return read


def decimal_text_of(scale: int | None) -> Callable[[str], str]:
    """For `numeric` of a scale: return all digits, or Debezium's infinities and NaN."""

    def read(text: str) -> str:
        if text[-1] not in "0123456789":
            return _NOT_FINITE[text]
        digits, _, fraction = text.partition(".")
        return text if scale is None or len(fraction) == scale else f"{digits}.{fraction.ljust(scale, '0')}"

    return read


def variable_scale_decimal(text: str) -> dict[str, Any]:
    digits, _, fraction = _finite(text).partition(".")
    fraction = fraction.rstrip("0")
    return {"scale": len(fraction), "value": twos_complement(whole(digits + fraction))}


def money_units(text: str, digits: int) -> int:
    """Return `money` in units of 10^-digits, rounded half up.

    The text has `MONEY_DIGITS` after the point in any currency, as sessions have lc_monetary=C (`catalog`).
    """
    amount = int("".join(character for character in text if character.isdigit()))
    if digits >= MONEY_DIGITS:
        amount *= int(10 ** (digits - MONEY_DIGITS))
    else:
        unit = int(10 ** (MONEY_DIGITS - digits))
        amount = (amount + unit // 2) // unit
    return -amount if "-" in text or "(" in text else amount


def bits(text: str) -> bytes:
    number = int(text or "0", 2)
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def _days(year: int, month: int, day: int) -> int:
    """Return days since 1970 in the Gregorian calendar. Year 0 is 1 BC."""
    cycles = (year - 1) // 400  # the calendar repeats; Python's dates have years 1 to 9999
    return dt.date(year - 400 * cycles, month, day).toordinal() - 719_163 + 146_097 * cycles


def _moment(text: str) -> tuple[int, int]:
    """Return (days since 1970, microseconds of the day)."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no date or timestamp in ISO form")
    year, month, day, hour, minute, second, fraction, bc = match.groups()
    days = _days(1 - int(year) if bc else int(year), int(month), int(day))
    if hour is None:
        return days, 0
    seconds = int(hour) * 3600 + int(minute) * 60 + int(second)
    return days, seconds * 1_000_000 + int((fraction or "").ljust(6, "0"))


def date(text: str) -> int:
    """Return days since 1970."""
    if text.endswith("infinity"):
        return DATE_MINUS_INFINITY if text[0] == "-" else DATE_INFINITY
    return _moment(text)[0]


def timestamp_us(text: str) -> int:
    """Return microseconds since 1970; infinities become the largest and smallest numbers."""
    if text.endswith("infinity"):
        return INT64_MIN if text[0] == "-" else INT64_MAX
    days, micros = _moment(text)
    return days * _DAY_US + micros


def timestamp_ms(text: str) -> int:
    if text.endswith("infinity"):
        return TIMESTAMP_MINUS_INFINITY_MS if text[0] == "-" else TIMESTAMP_INFINITY_MS
    return timestamp_us(text) // 1000


def zoned_timestamp_of(precision: int) -> Callable[[str], str]:
    """For `timestamptz`: return ISO 8601 in UTC with the column's fractional digits."""

    def read(text: str) -> str:
        if text.endswith("infinity"):
            return text
        day, _, rest = text.removesuffix(" BC").partition(" ")
        if text.endswith(" BC"):
            year, _, day = day.partition("-")
            before = 1 - int(year)
            day = f"{'-' if before < 0 else ''}{-before:04d}-{day}"
        elif day[4] != "-":
            day = "+" + day
        clock, _, fraction = rest.removesuffix("+00").partition(".")
        return f"{day}T{clock}.{fraction.ljust(precision, '0')}Z" if precision else f"{day}T{clock}Z"

    return read


def _clock(text: str) -> tuple[int, int]:
    """Return (microseconds of the day, seconds east of UTC)."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no time in ISO form")
    hour, minute, second, fraction, sign, *zone = match.groups()
    offset = int(zone[0] or 0) * 3600 + int(zone[1] or 0) * 60 + int(zone[2] or 0)
    micros = (int(hour) * 3600 + int(minute) * 60 + int(second)) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    return micros, -offset if sign == "-" else offset


def time_us(text: str) -> int:
    """Return microseconds since midnight; 24:00 is valid."""
    return _clock(text)[0]


def time_ms(text: str) -> int:
    return _clock(text)[0] // 1000


def zoned_time(text: str) -> str:
    """For `timetz`: return ISO 8601 in UTC."""
    micros, offset = _clock(text)
    if not (micros == _DAY_US and offset == 0):
        micros = (micros - offset * 1_000_000) % _DAY_US
    seconds, fraction = divmod(micros, 1_000_000)
    ending = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{ending}Z"


def _interval(text: str) -> tuple[dict[str, int], int, int, int, int]:
    """Return signed (years, months and days; hours; minutes; seconds; microseconds)."""
    parts = {"year": 0, "mon": 0, "day": 0}
    for number, unit in _INTERVAL_PART.findall(text):
        parts[unit] = int(number)
    match = _INTERVAL_TIME.search(text)
    if match is None:
        return parts, 0, 0, 0, 0
    sign = -1 if match[1] == "-" else 1
    return (
        parts,
        sign * int(match[2]),
        sign * int(match[3]),
        sign * int(match[4]),
        sign * int((match[5] or "").ljust(6, "0")),
    )


def interval_us(text: str) -> int:
    """Return microseconds, with months of 30.4375 days. Overflows and infinity (PostgreSQL 17) become the largest or
    smallest number.
    """
    if text.endswith("infinity"):
        return INT64_MIN if text[0] == "-" else INT64_MAX
    parts, hours, minutes, seconds, micros = _interval(text)
    months = parts["year"] * 12 + parts["mon"]
    clock = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros
    return max(INT64_MIN, min(INT64_MAX, months * _MONTH_US + parts["day"] * _DAY_US + clock))


def interval_iso(text: str) -> str:
    """Return `P1Y2M3DT4H5M6.789S`; raises ValueError if infinite."""
    if text.endswith("infinity"):
        raise ValueError(f"{text} is no interval in ISO form; interval.handling.mode=numeric has a number for it")
    parts, hours, minutes, seconds, micros = _interval(text)
    total = seconds * 1_000_000 + micros
    fraction = f".{abs(total) % 1_000_000:06d}".rstrip("0").rstrip(".")
    whole_seconds = f"{'-' if total < 0 else ''}{abs(total) // 1_000_000}{fraction}"
    return f"P{parts['year']}Y{parts['mon']}M{parts['day']}DT{hours}H{minutes}M{whole_seconds}S"


def hstore_map(text: str) -> dict[str, str | None]:
    pairs: dict[str, str | None] = {}
    for pair in _HSTORE.finditer(text):
        value = None if pair[2] is None else _ESCAPED.sub(r"\1", pair[2])
        pairs[_ESCAPED.sub(r"\1", pair[1])] = value
    return pairs


def hstore_json(text: str) -> str:
    return json.dumps(hstore_map(text), ensure_ascii=False, separators=(",", ":"))


def array(text: str) -> list[str | None]:
    """Return an array's elements, None for NULL, dimensions flattened; raises ValueError."""
    start = text.index("{")  # unusual bounds precede it: [0:1]={a,b}
    body = text[start + 1 : -1]
    if not body:
        return []
    if not ('"' in body or "{" in body):
        return [None if element == "NULL" else element for element in body.split(",")]
    elements: list[str | None] = []
    at = 0
    while at < len(body):
        token = _ARRAY_TOKEN.match(body, at)
        if token is None:
            raise ValueError(f"an array cannot continue with {body[at : at + 20]!r}")
        if token[1] is not None:
            elements.append(_ESCAPED.sub(r"\1", token[1]))
        elif token[3] is not None:
            elements.append(None if token[3] == "NULL" else token[3])
        at = token.end()
    return elements
