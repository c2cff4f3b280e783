"""Log lines about hosts that exceed their share.

Here: the lines, at a limited rate.
Not here: the refusal (`kernel.fair_share`), the response.
"""

import logging
from collections.abc import Callable

from busway_bus.kernel.peer_warnings import PeerWarnings


class Refusals:
    """The refusals of one coordinator; `now` is monotonic, in s."""

    def __init__(self, log: logging.Logger, now: Callable[[], float]) -> None:
        self._log = log
        self._now = now
        self._peer_warnings = PeerWarnings()

    def tell(self, host: str, text: str) -> None:
        left_out = self._peer_warnings.admit(host, self._now())
        if left_out is None:
            return
        if left_out:
            self._log.warning("%d more lines like the next were left out", left_out)
        self._log.warning("refused: %s", text)
