"""Delays between retries, a deadline for them, and the errors that a retry may mend.

Not here: which error codes are retriable (`busway_protocol.errors`).
"""

from collections.abc import Callable
from dataclasses import dataclass

from busway.errors import AuthenticationFailed, BrokerError, ConnectionFailed, RequestTimedOut
from busway.net.clock import REAL_TIME


def is_passing(problem: Exception) -> bool:
    """Return whether an error says that a broker cannot be reached now, or has a retriable code."""
    if isinstance(problem, BrokerError):
        return problem.retriable
    return isinstance(problem, ConnectionFailed | RequestTimedOut) and not isinstance(problem, AuthenticationFailed)


def _no_jitter() -> float:
    return 0.0


@dataclass(slots=True)
class Backoff:
    """Delays in seconds: `initial`, doubled each time up to `limit`, minus up to 20 % by `rng`; exact without one."""

    rng: Callable[[], float] = _no_jitter
    initial: float = 0.05
    limit: float = 1.0
    tries: int = 0

    def next(self) -> float:
        wait = min(self.limit, self.initial * 2**self.tries)
        self.tries = min(self.tries + 1, 30)
        return float(wait * (1 - 0.2 * self.rng()))

    def reset(self) -> None:
        self.tries = 0


class RetryTimer:
    """The deadline of a retried call, in the seconds of `REAL_TIME.now_s`, and the delays between its attempts."""

    __slots__ = ("_backoff", "deadline")

    def __init__(self, backoff: Backoff, timeout_s: float) -> None:
        self._backoff = backoff
        self.deadline: float = REAL_TIME.now_s() + timeout_s

    @property
    def is_expired(self) -> bool:
        return REAL_TIME.now_s() >= self.deadline

    async def sleep(self, delay_s: float | None = None) -> None:
        """Wait before the next attempt, by the backoff unless `delay_s` is given."""
        await REAL_TIME.sleep(self._backoff.next() if delay_s is None else delay_s)

    async def sleep_or_raise(self, problem: Exception) -> None:
        """Wait before the next attempt; from the deadline on, raise `problem` instead."""
        if self.is_expired:
            raise problem
        await self.sleep()
