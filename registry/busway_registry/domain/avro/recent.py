"""Schemas that were parsed a short while ago, as trees.

What lives here: a bounded memory for the earlier versions that every new one is compared with. What does not: parsing (`parser`).
"""

from collections import OrderedDict
from collections.abc import Iterable

from busway_registry.domain.avro.parser import Parsed, parse


class RecentlyParsed:
    """`parse`, with a memory.

    Args:
        most_chars: how much text the trees kept may have come from; a tree takes about fifty bytes for a character.
    """

    def __init__(self, most_chars: int) -> None:
        self._most = most_chars
        self._held = 0
        self._trees: OrderedDict[tuple[str, ...], Parsed] = OrderedDict()

    def missing_chars(self, text: str, references: Iterable[str] = ()) -> int:
        """How much text would have to be read for it."""
        key = (text, *references)
        return 0 if key in self._trees else _size(key)

    def __call__(self, text: str, references: Iterable[str] = ()) -> Parsed:
        """The schema in `text`.

        Raises:
            AvroError: the text or a reference is not valid.
        """
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
