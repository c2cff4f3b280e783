"""Backoff of outbox rows that could not be published.

Here: which topic, key or row waits until when; pure.
Not here: publishing (`relay`).

A record refused for its content (too large, no such partition) holds its key, which keeps the key's order; other keys
continue. Any other failure (no such topic, not allowed, not acknowledged) holds its topic.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from busway.app.model.retry import is_too_large
from busway.errors import BrokerError, BuswayError
from busway.sql.outages import WAITS
from busway_protocol.errors import ErrorCode

MAX_HELD: Final = 100
"""Limit of waits; at the limit a failure holds its topic instead of a key or row."""
_ITS_OWN: Final = frozenset({ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.RECORD_LIST_TOO_LARGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    topics: frozenset[str]
    keys: frozenset[tuple[str, bytes]]
    positions: frozenset[int]


_What = str | tuple[str, bytes] | int


class Holds:
    """Backoff by topic, by (topic, key), and by position without a key; `chance` is random below 1, for jitter."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._waits: dict[_What, tuple[int, float]] = {}

    def failed(self, topic: str, key: bytes | None, position: int, problem: Exception, now_s: float) -> float:
        what: _What = topic
        if is_its_own(problem):
            record: _What = (topic, key) if key is not None else position
            if record in self._waits or len(self._waits) < MAX_HELD:
                what = record
        attempt, until_s = self._waits.get(what, (0, 0.0))
        if until_s > now_s:
            return until_s - now_s  # another row of the same round
        wait_s = WAITS.wait_s(attempt + 1, self._chance())
        self._waits[what] = (attempt + 1, now_s + wait_s)
        return wait_s

    def succeeded(self, topic: str, key: bytes | None, position: int) -> None:
        if self._waits:
            self._waits.pop(topic, None)
            self._waits.pop((topic, key) if key is not None else position, None)

    def now(self, now_s: float) -> Held:
        held = [what for what, (_, until_s) in self._waits.items() if until_s > now_s]
        return Held(
            topics=frozenset(what for what in held if isinstance(what, str)),
            keys=frozenset(what for what in held if isinstance(what, tuple)),
            positions=frozenset(what for what in held if isinstance(what, int)),
        )

    def next_s(self, looked_s: float) -> float:
        """Return the first end of waits held at `looked_s`. May be past; infinity without any."""
        return min((until_s for _, until_s in self._waits.values() if until_s > looked_s), default=float("inf"))


def is_its_own(problem: Exception) -> bool:
    """Return whether the record's content failed; others of its topic may pass."""
    if not isinstance(problem, BuswayError):
        return True  # ValueError: partition or timestamp
    return is_too_large(problem) or (isinstance(problem, BrokerError) and problem.code in _ITS_OWN)
