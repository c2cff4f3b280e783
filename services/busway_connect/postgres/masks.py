"""Debezium's settings that hide text columns.

Here: reading them, and masking values.
Not here: the values (`records`).

They are `column.mask.with.N.chars`, `column.mask.hash.ALGORITHM.with.salt.SALT`, `column.mask.hash.v2.…` and
`column.truncate.to.N.chars`, each a list of regular expressions of `schema.table.column`. Like in Debezium, a column's
first match counts, truncation before masks before hashes; a mask replaces null, too; other types pass unchanged, with a
log message; a hash is cut to its column's length. Debezium publishes masked key columns unmasked; here they fail the
task.
"""

import hashlib
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from busway_connect.patterns import BadPattern, Pattern

Patterns = Callable[[str], tuple[Pattern, ...]]
_TRUNCATE: Final = re.compile(r"column\.truncate\.to\.([0-9]{1,9})\.chars")
_MASK: Final = re.compile(r"column\.mask\.with\.([0-9]{1,4})\.chars")
_HASH: Final = re.compile(r"column\.mask\.hash\.(v2\.)?([^.]+)\.with\.salt\.(.+)")
_ALGORITHMS: Final = {
    "MD5": "md5", "SHA": "sha1", "SHA-1": "sha1", "SHA-224": "sha224", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512",
    "SHA3-224": "sha3_224", "SHA3-256": "sha3_256", "SHA3-384": "sha3_384", "SHA3-512": "sha3_512",
}  # fmt: skip
"""Java's names of algorithms that both have."""
_SHORT_UTF_MAX: Final = 0xFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """A setting.

    Attributes:
        columns: regular expressions of `schema.table.column`.
        chars: characters kept, or number of stars.
        algorithm, salt, first_version: of a hash; the first version hashes Java's serialized form of the text.
    """

    setting: str
    columns: tuple[Pattern, ...]
    chars: int = 0
    truncates: bool = False
    algorithm: str | None = None
    salt: bytes = b""
    first_version: bool = False

    def takes(self, column: str) -> bool:
        return any(pattern.fullmatch(column) for pattern in self.columns)

    def parameters(self, length: int | None) -> tuple[tuple[str, str], ...]:
        """Return the schema's parameters for a column of this length; None for non-text."""
        if not self.truncates:
            return (("masked", "true"),)
        return (("truncateLength", str(self.chars)),) if length is not None and length > self.chars else ()

    def of(self, value: Any, length: int) -> Any:
        if self.truncates:
            return value if value is None else _cut(value, self.chars)
        if self.algorithm is None:
            return "*" * self.chars
        if value is None:
            return None
        data = _serialized(value) if self.first_version else value.encode()
        return _cut(hashlib.new(self.algorithm, self.salt + data, usedforsecurity=False).hexdigest(), length)


def _cut(text: str, units: int) -> str:
    """Return the first Java characters; a split surrogate pair becomes a question mark."""
    if len(text) * 2 <= units:
        return text
    return (
        text.encode("utf-16-le")[: units * 2].decode("utf-16-le", errors="replace").replace("\ufffd", "?")
        if not text.isascii()
        else text[:units]
    )


def _serialized(text: str) -> bytes:
    """Return ObjectOutputStream's String. In its UTF-8 zero has two bytes and a surrogate three."""
    units = text.encode("utf-16-be")
    data = bytearray()
    for (unit,) in struct.iter_unpack(">H", units):
        if 0 < unit < 0x80:
            data.append(unit)
        elif unit < 0x800:
            data += bytes((0xC0 | unit >> 6, 0x80 | unit & 0x3F))
        else:
            data += bytes((0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F))
    if len(data) <= _SHORT_UTF_MAX:
        return b"\xac\xed\x00\x05\x74" + len(data).to_bytes(2, "big") + data
    return b"\xac\xed\x00\x05\x7c" + len(data).to_bytes(8, "big") + data


def is_mask(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in (_TRUNCATE, _MASK, _HASH))


def read_masks(config: Mapping[str, str], patterns: Patterns) -> tuple[Mask, ...]:
    masks_by_rank: list[tuple[int, Mask]] = []
    for name, text in config.items():
        if truncates := _TRUNCATE.fullmatch(name):
            masks_by_rank.append(
                (0, Mask(setting=name, columns=patterns(text), chars=int(truncates[1]), truncates=True))
            )
        elif masks := _MASK.fullmatch(name):
            masks_by_rank.append((1, Mask(setting=name, columns=patterns(text), chars=int(masks[1]))))
        elif hashes := _HASH.fullmatch(name):
            algorithm, salt = _ALGORITHMS[hashes[2].upper()], hashes[3].encode()
            first = hashes[1] is None
            masks_by_rank.append(
                (2, Mask(setting=name, columns=patterns(text), algorithm=algorithm, salt=salt, first_version=first))
            )
    return tuple(mask for _, mask in sorted(masks_by_rank, key=lambda ranked: ranked[0]))


def mask_problems(config: Mapping[str, str], patterns: Patterns) -> dict[str, str]:
    wrong = {}
    for name, text in config.items():
        if not is_mask(name):
            continue
        truncates, hashes = _TRUNCATE.fullmatch(name), _HASH.fullmatch(name)
        if truncates and int(truncates[1]) == 0:
            wrong[name] = "the length to cut to is at least 1; to hide all of a text use column.mask.with.N.chars"
        elif hashes and hashes[2].upper() not in _ALGORITHMS:
            wrong[name] = f"the hash {hashes[2]} is not served; what is: {', '.join(_ALGORITHMS)}"
        try:
            if not patterns(text):
                wrong[name] = "it names no columns, so that nothing would be hidden"
        except BadPattern as problem:
            wrong[name] = f"{text!r} is no list of regular expressions: {problem}"
    return wrong
