"""A cache of parsed schemas.

Here: a bounded cache of earlier versions, with which each new one is compared.
Not here: parsing (`parser`).
"""

from collections import OrderedDict
from collections.abc import Iterable

from busway_registry.domain.avro.parser import Parsed, parse


class RecentlyParsed:
    """`parse` with a cache.

    Args:
        most_chars: limit on the cached trees' source text; a tree takes about 50 bytes for each character.
    """

    def __init__(self, most_chars: int) -> None:
        self._most = most_chars
        self._held = 0
        self._trees: OrderedDict[tuple[str, ...], Parsed] = OrderedDict()

    def missing_chars(self, text: str, references: Iterable[str] = ()) -> int:
        """Return the characters to parse for an uncached schema, 0 for a cached one."""
        key = (text, *references)
        return 0 if key in self._trees else _size(key)

    def __call__(self, text: str, references: Iterable[str] = ()) -> Parsed:
        """Return the schema in `text`; raises `AvroError` if it or a reference is invalid."""
        key = (text, *references)
        if key in self._trees:
            self._trees.move_to_end(key)
            return self._trees[key]
        parsed = parse(text, key[1:])
        if _size(key) <= self._most:
            self._trees[key] = parsed
            self._held += _size(key)
            while self._held > self._most:
                gone, _ = self._trees.popitem(last=False)
                self._held -= _size(gone)
        return parsed


def _size(key: tuple[str, ...]) -> int:
    return sum(map(len, key))
