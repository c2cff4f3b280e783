"""A column's default for the schema, like Debezium.

Here: PostgreSQL's printed expression → value.
Not here: column types (`columns`).

Nothing is evaluated: a constant is parsed, a function becomes the type's zero, any other expression means no default.
"""

import re
from typing import Any, Final

from busway_connect.postgres.columns import Codec

NONE: Final = object()
_LITERAL: Final = re.compile(r"'([^']*(?:''[^']*)*)'")
_FUNCTION: Final = re.compile(r"[(]?[A-Za-z0-9_.]+\(.*\)", re.DOTALL)
_CLOCKS: Final = frozenset({"current_timestamp", "current_time", "current_date", "localtime", "localtimestamp"})
_OF_FUNCTION: Final = {
    "bit": "0", "varbit": "0", "bool": "f", "bpchar": "", "varchar": "", "text": "", "numeric": "0", "float4": "0",
    "float8": "0", "int2": "0", "int4": "0", "int8": "0", "json": "{}", "jsonb": "{}", "xml": "",
    "uuid": "00000000-0000-0000-0000-000000000000", "date": "1970-01-01", "time": "00:00:00",
    "timestamp": "1970-01-01 00:00:00", "timestamptz": "1970-01-01 00:00:00+00", "interval": "",
}  # fmt: skip
"""By type: text of the value that stands for a function's."""


def default_of(codec: Codec, expression: str | None) -> Any:
    kind = codec.default_type
    if kind is None or expression is None:
        return NONE
    text = _constant(kind, expression)
    if text is None:
        return NONE
    try:
        return codec.read(text)
    except ValueError:  # neither a constant nor a function
        return NONE


def _constant(kind: str, expression: str) -> str | None:
    if kind == "enum":
        match = _LITERAL.match(expression)
        return match[1].replace("''", "'") if match is not None else None
    if _FUNCTION.match(expression) or expression.lower() in _CLOCKS:
        return _OF_FUNCTION[kind]
    match = _LITERAL.search(expression)
    if match is not None:
        return match[1].replace("''", "'")
    if expression.startswith("NULL::"):
        return None
    return {"true": "t", "false": "f"}.get(expression) if kind == "bool" else expression
