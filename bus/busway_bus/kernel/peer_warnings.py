"""How many log lines bad peers get.

What lives here: the count, for each peer and for all, in intervals. What does not: the clock (times come in), and the lines.
"""

from collections import Counter

from busway_bus.kernel.limits import BAD_PEER_LINES, BAD_PEER_LOG_INTERVAL_MS, BAD_PEERS_LINES


class Complaints:
    """Lets a bounded number of lines through in each interval, and counts the others."""

    def __init__(self) -> None:
        self._began = float("-inf")
        self._lines: Counter[str] = Counter()
        self._left_out = 0

    def admit(self, host: str, now: float) -> int | None:
        """None where a line about this peer has to be left out; else how many were in the last interval and are not told yet.

        Args:
            now: seconds on any clock that does not jump.
        """
        unreported = 0
        if now - self._began >= BAD_PEER_LOG_INTERVAL_MS / 1000:
            self._began = now
            self._lines.clear()
            unreported, self._left_out = self._left_out, 0
        if self._lines[host] >= BAD_PEER_LINES or self._lines.total() >= BAD_PEERS_LINES:
            self._left_out += 1
            return None
        self._lines[host] += 1
        return unreported
