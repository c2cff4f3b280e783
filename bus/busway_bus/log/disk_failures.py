"""Log lines about appends that the disk refuses.

What lives here: one line at the first failure, a count in each interval after it, and one when appends work again. What does not: what
the client is answered (`replication.manager`, `quorum.alone`).
"""

import logging
from collections.abc import Callable

from busway_bus.kernel.limits import DISK_FAILURE_LOG_INTERVAL_MS

logger = logging.getLogger("busway.replication")


class DiskFailures:
    """Logs that appends fail, at most once in each `DISK_FAILURE_LOG_INTERVAL_MS`.

    Args:
        now: seconds on a clock that does not jump.

    Attributes:
        failing: whether the last append failed.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.failing = False
        self._logged_at = self._worked_at = float("-inf")
        self._count = 0

    def failed(self, what: str, problem: OSError) -> None:
        """Count an append that failed, and log it where a line is due."""
        self.failing = True
        self._count += 1
        now = self._now()
        if now - self._logged_at < DISK_FAILURE_LOG_INTERVAL_MS / 1000:
            return
        more = "" if self._count == 1 else f"; {self._count} appends have failed since the last line"
        logger.error("cannot write %s: %s; clients send again until it works%s", what, problem, more)
        self._logged_at, self._count = now, 0

    def worked(self) -> None:
        """Log that appends work again, where the last one failed; once in an interval, as a full disk may take the small ones."""
        self.failing = False
        now = self._now()
        if now - self._worked_at >= DISK_FAILURE_LOG_INTERVAL_MS / 1000:
            logger.warning("appends work again")
            self._worked_at = now
