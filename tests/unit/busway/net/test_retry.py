"""Delays between retries: doubling, bounded, exact or with a random share."""

from busway.net.retry import Backoff


def test_delays_double_up_to_the_limit_and_begin_again() -> None:
    """Exactly, where no randomness is given."""
    backoff = Backoff(initial=0.2, limit=10.0)
    assert [backoff.next() for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    backoff.reset()
    assert backoff.next() == 0.2


def test_a_random_share_shortens_them() -> None:
    """By 20 % at most."""
    assert Backoff(lambda: 1.0, initial=1.0, limit=1.0).next() == 0.8
