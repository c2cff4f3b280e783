"""Requests in flight to the other nodes of the quorum: correlation, time-outs, backoff."""

import pytest

from busway_bus.quorum.requests import Requests


@pytest.fixture
def requests() -> Requests:
    """Requests that time out after 2 s, with a backoff of 50 ms."""
    return Requests(timeout_ms=2_000, backoff_ms=50)


def test_one_request_to_a_node_at_a_time(requests: Requests) -> None:
    """Other nodes are not held up."""
    correlation = requests.sent(1, 0)
    assert not requests.may_send(1, 0)
    assert requests.may_send(2, 0)
    assert requests.any_under_way
    assert requests.answered(correlation) == 1
    assert requests.may_send(1, 0)
    assert not requests.any_under_way


def test_a_response_is_taken_once(requests: Requests) -> None:
    """A second one, and one of a request that was given up, belongs to no request."""
    first = requests.sent(1, 0)
    assert requests.answered(first) == 1
    assert requests.answered(first) is None
    requests.sent(1, 10)
    requests.forget()
    second = requests.sent(1, 20)
    assert second not in {first, first + 1}
    assert requests.answered(first + 1) is None
    assert requests.answered(second) == 1


def test_a_request_times_out_and_its_node_backs_off(requests: Requests) -> None:
    """At the time-out, not before."""
    correlation = requests.sent(1, 0)
    requests.expire(1_999)
    assert requests.any_under_way
    requests.expire(2_000)
    assert requests.answered(correlation) is None
    assert requests.is_left_alone(1, 2_049)
    assert not requests.may_send(1, 2_049)
    assert requests.may_send(1, 2_050)
    assert not requests.is_left_alone(1, 2_050)


def test_the_next_wake_up(requests: Requests) -> None:
    """The earliest time-out or end of a backoff that is not over."""
    assert requests.wake_ms(0) is None
    requests.sent(1, 0)
    requests.back_off(2, 0)
    assert requests.wake_ms(0) == 50
    assert requests.wake_ms(50) == 2_000
    requests.forget()
    assert requests.wake_ms(50) is None
