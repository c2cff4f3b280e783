"""Log lines about repeated failures, at a limited rate."""

import logging
from collections.abc import Callable, Hashable
from typing import Final

from busway.net.clock import REAL_TIME

EVERY_S: Final = 10.0
"""Minimum interval between lines about one subject; the next line counts those left out."""
_SUBJECTS_MAX: Final = 1_000
"""Remembered subjects; beyond it all are forgotten, and logged again earlier."""


class RateLimitedLog:
    """A logger with at most one line per subject every `EVERY_S`."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] | None = None) -> None:
        self._log = log
        self._clock = clock
        self._logged: dict[Hashable, tuple[float, int]] = {}

    def log(self, level: int, about: Hashable, text: str, *arguments: object) -> None:
        now = (self._clock or REAL_TIME.monotonic_s)()
        last, left_out = self._logged.get(about, (-EVERY_S, 0))
        if now - last < EVERY_S:
            self._logged[about] = last, left_out + 1
            return
        if len(self._logged) >= _SUBJECTS_MAX:
            self._logged.clear()
        self._logged[about] = now, 0
        more = f" ({left_out} more like this since the last line)" if left_out else ""
        self._log.log(level, text + more, *arguments)
