"""What is looked up while records wait, one of a kind at a time.

What lives here: that nobody waits for it, and how soon it may be tried again. What does not: what is looked up (`sender`).
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
    """Errands by what they are for.

    Args:
        spawn: starts a task that ends with its owner.
        done: called after each one, however it ended.
        seldom: where failures are told.
    """

    def __init__(
        self,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        done: Callable[[], None],
        rate_limited_log: RateLimitedLog,
    ) -> None:
        self._spawn = spawn
        self._done = done
        self._seldom = rate_limited_log
        self._not_before: dict[str, float] = {}

    def begin(self, what: str, errand: Callable[[], Awaitable[None]], now: float, *, rest_s: float = RETRY_S) -> None:
        """Run one, unless one for the same is under way or ended less than `rest_s` ago."""
        if now >= self._not_before.get(what, 0.0):
            self._not_before[what] = math.inf
            self._spawn(self._run(what, errand, rest_s))

    async def _run(self, what: str, errand: Callable[[], Awaitable[None]], rest_s: float) -> None:
        try:
            await errand()
        except BuswayError as problem:
            self._seldom.tell(logging.WARNING, what, "%s cannot be had: %s", what, problem)
        finally:
            self._not_before[what] = REAL_TIME.now_s() + rest_s
            self._done()
