"""Names valid in Avro: Debezium's `schema.name.adjustment.mode` and `field.name.adjustment.mode`.

Here: names under `none`, `avro` and `avro_unicode`.
Not here: where names occur (`records`).

Under `avro` invalid characters become underscores, and a leading digit gets one before it. Under `avro_unicode` they
become `_u` and the hexadecimal number of Java's character, and so does the underscore, so that distinct names stay
distinct.
"""

from collections.abc import Callable
from typing import Final

MODES: Final = ("none", "avro", "avro_unicode")
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS: Final = frozenset("0123456789")


def adjusted(name: str, mode: str, *, dots: bool) -> str:
    """Return a name under a mode.

    Args:
        dots: keep dots, as in the full name of a schema.
    """
    if mode == "none" or not name:
        return name
    unicode = mode == "avro_unicode"
    first = _LETTERS if unicode else _LETTERS | {"_"}
    later = first | _DIGITS | ({"."} if dots else frozenset())
    replace: Callable[[str], str] = _escaped if unicode else _underscore
    head = name[0]
    if head not in first:
        head = replace(head) + (head if head.isdigit() and not unicode else "")
    return head + "".join(character if character in later else replace(character) for character in name[1:])


def _underscore(character: str) -> str:
    return "_" * len(_units(character))


def _escaped(character: str) -> str:
    return "".join(
        "_u" + ("00" + text if len(text) <= 2 else text) for text in (f"{unit:x}" for unit in _units(character))
    )


def _units(character: str) -> list[int]:
    data = character.encode("utf-16-be", errors="surrogatepass")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
