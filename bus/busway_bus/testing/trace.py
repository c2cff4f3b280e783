"""The events of a simulated world, one line for each.

Here: the lines, and one hash of all, equal for all runs of a seed, whatever Python's hash seed.
Not here: which events to add.
"""

import hashlib
from collections import deque
from typing import Final

LINES_MAX: Final = 200_000
"""Events kept as text. The hash has all."""
_HASHED_AT_ONCE: Final = 4_096

Event = tuple[float, str, str]
"""Virtual time in s, process, text."""


class Trace:
    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=LINES_MAX)
        self._unhashed: list[Event] = []
        self._hash = hashlib.sha256()
        self.count = 0

    def add(self, now: float, process: str, what: str) -> None:
        event = (now, process, what)
        self._events.append(event)
        self._unhashed.append(event)
        self.count += 1
        if len(self._unhashed) >= _HASHED_AT_ONCE:
            self._settle()

    def _settle(self) -> None:
        self._hash.update(repr(self._unhashed).encode())
        self._unhashed.clear()

    @property
    def digest(self) -> str:
        self._settle()
        return self._hash.hexdigest()

    def lines(self, last: int | None = None) -> list[str]:
        """Return the last events as text, by default all that are kept."""
        events = list(self._events)
        return [f"{now:12.6f} {process:<12} {what}" for now, process, what in (events[-last:] if last else events)]
