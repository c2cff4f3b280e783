"""Lookups in the background, one of each kind at a time.

Not here: the lookups (`sender`).
"""

import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from busway.cluster.rate_limited_log import RateLimitedLog
from busway.errors import BuswayError
from busway.net.clock import REAL_TIME

RETRY_S: Final = 0.1


class SingleFlight:
    """Running lookups by their kind; `done` is called after each, also after a failure."""

    def __init__(
        self,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        done: Callable[[], None],
        rate_limited_log: RateLimitedLog,
    ) -> None:
        self._spawn = spawn
        self._done = done
        self._rate_limited_log = rate_limited_log
        self._not_before: dict[str, float] = {}

    def begin(
        self, what: str, operation: Callable[[], Awaitable[None]], now: float, *, rest_s: float = RETRY_S
    ) -> None:
        if now >= self._not_before.get(what, 0.0):
            self._not_before[what] = math.inf
            self._spawn(self._run(what, operation, rest_s))

    async def _run(self, what: str, operation: Callable[[], Awaitable[None]], rest_s: float) -> None:
        try:
            await operation()
        except BuswayError as problem:
            self._rate_limited_log.log(logging.WARNING, what, "%s cannot be had: %s", what, problem)
        finally:
            self._not_before[what] = REAL_TIME.now_s() + rest_s
            self._done()
