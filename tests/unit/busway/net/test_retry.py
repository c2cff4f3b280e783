"""Delays between retries: doubling, bounded, exact or with a random share; and their deadline."""

import pytest

from busway.errors import AuthenticationFailed, BrokerError, ConnectionFailed, RequestTimedOut
from busway.net.retry import Backoff, RetryTimer, is_passing
from busway_protocol.errors import ErrorCode


def test_delays_double_up_to_the_limit_and_begin_again() -> None:
    """Exactly, where no randomness is given."""
    backoff = Backoff(initial=0.2, limit=10.0)
    assert [backoff.next() for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    backoff.reset()
    assert backoff.next() == 0.2


def test_a_random_share_shortens_them() -> None:
    """By 20 % at most."""
    assert Backoff(lambda: 1.0, initial=1.0, limit=1.0).next() == 0.8


async def test_before_the_deadline_an_attempt_follows() -> None:
    """After the next delay of the backoff, or another one that is asked for."""
    delays = Backoff(initial=0.0, limit=0.0)
    timer = RetryTimer(delays, timeout_s=3600.0)
    await timer.sleep_or_raise(ValueError("passing"))
    assert (timer.is_expired, delays.tries) == (False, 1)
    await timer.sleep(0.0)
    assert delays.tries == 1


async def test_from_the_deadline_on_the_problem_is_raised() -> None:
    """Unchanged, without a further wait."""
    delays = Backoff()
    timer = RetryTimer(delays, timeout_s=0.0)
    problem = ValueError("the last one")
    with pytest.raises(ValueError, match="the last one") as raised:
        await timer.sleep_or_raise(problem)
    assert raised.value is problem
    assert (timer.is_expired, delays.tries) == (True, 0)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (ConnectionFailed("c"), True),
        (RequestTimedOut("r"), True),
        (AuthenticationFailed("a"), False),
        (BrokerError(ErrorCode.NOT_COORDINATOR, "b"), True),
        (BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "b"), False),
    ],
)
def test_only_errors_that_a_retry_may_mend_pass(problem: Exception, expected: bool) -> None:
    """Refused credentials stay refused, though no connection is made."""
    assert is_passing(problem) is expected
