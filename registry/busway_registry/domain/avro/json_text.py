"""JSON as Avro's Java library reads and writes it.

Here: reading with comments and a limit on nesting, compact writing with Java's number format.
Not here: the meaning (`parser`, `canonical`).
"""

import json
import math
import re
import struct
from collections.abc import Iterable
from typing import Any, Final

# Unterminated strings and comments match to the end, and quantifiers are possessive: linear time.
_COMMENT: Final = re.compile(r'"(?:\\(?:.|\Z)|[^"\\])*+(?:"|\Z)|/\*.*?(?:\*/|\Z)|//[^\r\n]*+', re.DOTALL)
_CONTROL: Final = re.compile(r"\\\\|\\u00[01][0-9a-f]")
_BLANKS: Final = "".join(map(chr, range(33)))
"""Characters that Java trims: all controls, not only JSON's white space."""
_DEEPEST: Final = 250
"""Limit on nested arrays and objects: far above any schema in use, far below the interpreter's stack."""


class BadJson(ValueError):
    """The text is not JSON that can be stored; the message has the reason."""


def load_json(text: str) -> Any:
    """Parse JSON with `/* */` and `//` comments, like Avro's parser.

    Raises:
        BadJson: invalid, nested too deeply, or a number or character that cannot be stored.
    """
    text = text.rstrip(_BLANKS)
    try:
        value = _load(text)
    except BadJson:
        if "/*" not in text and "//" not in text:
            raise
        value = _load(_COMMENT.sub(_blank, text))
    _check_depth(value)
    try:
        text.encode()
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadJson("a string holds half of a surrogate pair") from None
    return value


def _load(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as problem:
        raise BadJson(f"not JSON: {problem.msg} at line {problem.lineno} column {problem.colno}") from None
    except RecursionError:
        raise BadJson("the JSON is nested too deeply") from None
    except BadJson:
        raise
    except ValueError:  # the interpreter's limit on digits
        raise BadJson("a number has too many digits") from None


def _blank(match: re.Match[str]) -> str:
    if match[0][0] == '"':
        return match[0]
    if match[0][1] == "*" and (len(match[0]) < len("/**/") or not match[0].endswith("*/")):
        raise BadJson("not JSON: a comment has no end")
    if match.end() == len(match.string):
        raise BadJson("not JSON: a comment follows it; comments go inside")
    return " "


def _no_constant(word: str) -> None:
    raise BadJson(f"{word} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise BadJson(f"the number {text[:40]} is out of range")
    return number


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in _inside(outer) if isinstance(inner, dict | list)]
        if not level:
            return
    raise BadJson(f"the JSON is nested more than {_DEEPEST} levels deep")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def dump_json(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join([f"{_string(name)}:{dump_json(item)}" for name, item in value.items()]) + "}"
    if isinstance(value, list):
        return "[" + ",".join([dump_json(item) for item in value]) + "]"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, float):
        return _double(value)
    return json.dumps(value)


def _string(text: str) -> str:
    return _CONTROL.sub(lambda match: match[0][:2] + match[0][2:].upper(), json.dumps(text, ensure_ascii=False))


def _double(number: float) -> str:
    """Format like `Double.toString`: a digit after the point, and an exponent below 0.001 and from 10,000,000."""
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return f"{number:.{_places(number)}f}"
    digits, _, exponent = f"{number:.{len(_digits(number)) - 1}e}".partition("e")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


def _places(number: float) -> int:
    exponent = int(f"{number:e}".partition("e")[2])
    return max(1, len(_digits(number)) - 1 - exponent)


def _digits(number: float) -> str:
    text = repr(abs(number)).partition("e")[0].replace(".", "")
    return text.lstrip("0").rstrip("0") or "0"


def narrowed(number: float) -> float:
    """Return the shortest number equal as 32-bit float, as Java prints it."""
    try:
        (single,) = struct.unpack(">f", struct.pack(">f", number))
    except OverflowError:
        return number
    for precision in range(1, 10):
        shown = float(f"{single:.{precision}g}")
        if struct.unpack(">f", struct.pack(">f", shown))[0] == single:
            return shown
    return number
