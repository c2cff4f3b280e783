"""Log lines about hosts that may have no more of what all share.

What lives here: the lines, as many as there is room for. What does not: who is refused (`kernel.fair_share`), and what a client is told.
"""

import logging
from collections.abc import Callable

from busway_bus.kernel.peer_warnings import Complaints


class Refusals:
    """Those of one coordinator.

    Args:
        now: seconds of a clock that does not jump.
    """

    def __init__(self, log: logging.Logger, now: Callable[[], float]) -> None:
        self._log = log
        self._now = now
        self._complaints = Complaints()

    def tell(self, host: str, text: str) -> None:
        """A host was refused."""
        left_out = self._complaints.admit(host, self._now())
        if left_out is None:
            return
        if left_out:
            self._log.warning("%d more lines like the next were left out", left_out)
        self._log.warning("refused: %s", text)
