"""Moments at which something has to be looked at, for very many things whose moment is put off all the time.

What lives here: the earliest of them, in a time that does not grow with their number. What does not: whether a moment that has
come still counts; whoever keeps the deadline looks at it then, and puts it in again where it was put off meanwhile.
"""

import heapq

from busway_bus.kernel.limits import STALE_DEADLINES_MIN


class Deadlines:
    """When to look at what, in milliseconds; each key is here once."""

    __slots__ = ("_heap", "_moments")

    def __init__(self) -> None:
        self._moments: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def put(self, key: str, moment: int) -> None:
        """Look at `key` at `moment`, or earlier where that was asked for already."""
        before = self._moments.get(key)
        if before is not None and before <= moment:
            return
        self._moments[key] = moment
        heapq.heappush(self._heap, (moment, key))
        if len(self._heap) > 2 * len(self._moments) + STALE_DEADLINES_MIN:
            self._heap = [(moment, key) for key, moment in self._moments.items()]
            heapq.heapify(self._heap)

    def discard(self, key: str) -> None:
        """Look at it no more."""
        self._moments.pop(key, None)

    def earliest(self) -> int | None:
        """The next moment, None where there is nothing to look at."""
        while self._heap:
            moment, key = self._heap[0]
            if self._moments.get(key) == moment:
                return moment
            heapq.heappop(self._heap)
        return None

    def due(self, now: int, at_most: int | None = None) -> list[str]:
        """Take out what is to be looked at by now, the earliest first."""
        keys: list[str] = []
        while at_most is None or len(keys) < at_most:
            moment = self.earliest()
            if moment is None or moment > now:
                break
            _, key = heapq.heappop(self._heap)
            del self._moments[key]
            keys.append(key)
        return keys
