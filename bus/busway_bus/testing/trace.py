"""The events of a simulated world, one line for each.

Here: the lines, and one hash of all, equal for all runs of a seed, whatever Python's hash seed.
Not here: which events to add.
"""

import hashlib
import marshal
from collections import deque
from typing import Final

LINES_MAX: Final = 200_000
"""Events kept as text. The hash has all."""
_HASHED_AT_ONCE: Final = 4_096

_FORMAT: Final = 2
"""Of `marshal`: the newest that does not depend on which objects are shared."""
What = str | tuple[int, int, str]
"""A text; or a packet's size, CRC-32 and connection, which become one when they are read."""
Event = tuple[float, str, What]
"""Virtual time in s, process, and what happened."""


class Trace:
    def __init__(self) -> None:
        self._hashed: deque[Event] = deque(maxlen=LINES_MAX)
        self._new: list[Event] = []
        self._hash = hashlib.sha256()

    def add(self, now: float, process: str, what: What) -> None:
        self._new.append((now, process, what))
        if len(self._new) >= _HASHED_AT_ONCE:
            self._settle()

    def _settle(self) -> None:
        if not self._new:
            return
        self._hash.update(marshal.dumps(self._new, _FORMAT))
        self._hashed.extend(self._new)
        self._new.clear()

    @property
    def digest(self) -> str:
        self._settle()
        return self._hash.hexdigest()

    def lines(self, last: int | None = None) -> list[str]:
        """Return the last events as text, by default all that are kept."""
        events = [*self._hashed, *self._new][-LINES_MAX:]
        return [
            f"{now:12.6f} {process:<12} {_text(what)}" for now, process, what in (events[-last:] if last else events)
        ]


def _text(what: What) -> str:
    return what if isinstance(what, str) else f"{what[0]} bytes {what[1]:08x} on {what[2]}"
