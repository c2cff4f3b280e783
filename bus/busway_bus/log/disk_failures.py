"""Log lines for appends refused by the disk.

Here: a line at the first failure, per interval, and at recovery.
Not here: the response (`replication.manager`, `quorum.single_voter_writer`).
"""

import logging
from collections.abc import Callable

from busway_bus.kernel.limits import DISK_FAILURE_LOG_INTERVAL_MS

logger = logging.getLogger("busway.replication")


class DiskFailures:
    """Logger of failed appends, at most once in each `DISK_FAILURE_LOG_INTERVAL_MS`.

    `now`: monotonic, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.failing = False
        self._logged_at = self._worked_at = float("-inf")
        self._count = 0

    def failed(self, what: str, problem: OSError) -> None:
        self.failing = True
        self._count += 1
        now = self._now()
        if now - self._logged_at < DISK_FAILURE_LOG_INTERVAL_MS / 1000:
            return
        more = "" if self._count == 1 else f"; {self._count} appends have failed since the last line"
        logger.error("cannot write %s: %s; clients send again until it works%s", what, problem, more)
        self._logged_at, self._count = now, 0

    def worked(self) -> None:
        """Log that appends work after a failure.

        At most once in an interval: full disks may accept small appends.
        """
        self.failing = False
        now = self._now()
        if now - self._worked_at >= DISK_FAILURE_LOG_INTERVAL_MS / 1000:
            logger.warning("appends work again")
            self._worked_at = now
