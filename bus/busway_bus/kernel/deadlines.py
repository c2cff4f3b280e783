"""Deadlines of very many keys that are extended all the time.

Here: the earliest deadline, in a time independent of their number.
Not here: whether a due one still counts; the owner puts an extended one again.
"""

import heapq

from busway_bus.kernel.limits import STALE_DEADLINES_MIN


class Deadlines:
    """Deadlines in ms, at most one per key."""

    __slots__ = ("_heap", "_moments")

    def __init__(self) -> None:
        self._moments: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def put(self, key: str, moment: int) -> None:
        """Set a deadline; an earlier one stays."""
        before = self._moments.get(key)
        if before is not None and before <= moment:
            return
        self._moments[key] = moment
        heapq.heappush(self._heap, (moment, key))
        if len(self._heap) > 2 * len(self._moments) + STALE_DEADLINES_MIN:
            self._heap = [(moment, key) for key, moment in self._moments.items()]
            heapq.heapify(self._heap)

    def discard(self, key: str) -> None:
        self._moments.pop(key, None)

    def earliest(self) -> int | None:
        while self._heap:
            moment, key = self._heap[0]
            if self._moments.get(key) == moment:
                return moment
            heapq.heappop(self._heap)
        return None

    def due(self, now: int, at_most: int | None = None) -> list[str]:
        keys: list[str] = []
        while at_most is None or len(keys) < at_most:
            moment = self.earliest()
            if moment is None or moment > now:
                break
            _, key = heapq.heappop(self._heap)
            del self._moments[key]
            keys.append(key)
        return keys
