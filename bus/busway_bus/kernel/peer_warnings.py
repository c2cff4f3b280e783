"""Rate limit of log lines about bad peers.

Here: counts per interval, by peer and in total.
Not here: the clock, the lines.
"""

from collections import Counter

from busway_bus.kernel.limits import BAD_PEER_LINES, BAD_PEER_LOG_INTERVAL_MS, BAD_PEERS_LINES


class PeerWarnings:
    """Admits a bounded number of lines per interval."""

    def __init__(self) -> None:
        self._began = float("-inf")
        self._lines: Counter[str] = Counter()
        self._left_out = 0

    def admit(self, host: str, now: float) -> int | None:
        """Return None to omit a line, else how many were omitted.

        `now`: monotonic, in seconds.
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
