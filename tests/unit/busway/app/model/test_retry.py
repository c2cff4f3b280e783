"""How often and when a record is tried again, and what a dead letter says."""

import asyncio
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway import BrokerError, Exponential, MessageTooLarge, Record, Retry
from busway.app.model.retry import dead_letter_headers, dead_letter_topic, is_too_large, place_of, without_long_ones
from busway.serde.errors import Undecodable
from busway.serde.plain import Json
from busway_protocol.errors import ErrorCode


def test_waits_grow_to_a_limit() -> None:
    """Doubled each time; shortened by up to the jitter."""
    waits = Exponential(0.2, max=5)
    assert [waits.wait_s(attempt, 0) for attempt in range(1, 8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5, 5]
    assert waits.wait_s(2, 1) == pytest.approx(0.4 * 0.8)
    assert Exponential(1, factor=1e300, max=7, jitter=0).wait_s(10**9, 0) == 7
    assert Exponential(0, factor=1e300, max=7).wait_s(10**9, 0) == 0


@given(
    st.floats(0, 10), st.floats(1, 100), st.floats(0, 10), st.floats(0, 1), st.integers(1, 10**6), st.floats(0, 0.999)
)
def test_a_wait_is_never_negative_nor_beyond_the_limit(
    initial: float, factor: float, more: float, jitter: float, attempt: int, chance: float
) -> None:
    """Whatever the settings, attempt and chance."""
    waits = Exponential(initial, factor, initial + more, jitter)
    assert 0 <= waits.wait_s(attempt, chance) <= initial + more


@pytest.mark.parametrize(
    "settings", [{"initial": -1}, {"factor": 0.5}, {"max": 0.1}, {"jitter": 1.1}, {"jitter": -0.1}], ids=str
)
def test_waits_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    """With what they may be."""
    with pytest.raises(ValueError, match="jitter between 0 and 1"):
        Exponential(**settings)


CASES: list[tuple[Retry, Exception, int, bool]] = [
    (Retry(), OSError(), 4, True),
    (Retry(), OSError(), 5, False),
    (Retry(attempts=1), OSError(), 1, False),
    (Retry(on=(TimeoutError,)), TimeoutError(), 1, True),
    (Retry(on=(TimeoutError,)), ValueError(), 1, False),
    (Retry(on=(OSError,)), TimeoutError(), 1, True),
    (Retry(give_up_on=(TimeoutError,)), TimeoutError(), 1, False),
    (Retry(on=(OSError,), give_up_on=(TimeoutError,)), ConnectionError(), 1, True),
]


@pytest.mark.parametrize(("retry", "problem", "attempt", "again"), CASES)
def test_which_exceptions_are_tried_again(retry: Retry, problem: Exception, attempt: int, again: bool) -> None:
    """`on` says yes, `give_up_on` says no to some of them, `attempts` counts all calls."""
    assert (retry.wait_s(problem, attempt, lambda: 0.0) is not None) == again


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"attempts": "3"}, "attempts: '3'"),
        ({"backoff": 0.5}, "backoff: 0.5 is no Exponential"),
        ({"on": [ValueError]}, "on: .* is no tuple"),
        ({"give_up_on": ValueError}, "give_up_on: .* is no tuple"),
    ],
)
def test_options_of_another_type_are_refused(options: dict[str, Any], why: str) -> None:
    """When they are written, not when the first record fails."""
    with pytest.raises(ValueError, match=why):
        Retry(**options)


def test_no_attempt_at_all_is_refused() -> None:
    """One is the least."""
    with pytest.raises(ValueError, match="attempts: 0 is not 1 or more"):
        Retry(attempts=0)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def headers_of(problem: Exception) -> dict[str, Any]:
    record = Record("rides", 3, 42, 1_700_000_000_000, 0, b"k", b"v", (("own", b"1"),))
    return dict(dead_letter_headers(problem, record, group="quotes", attempts=4, handler="surge.quote"))


def test_a_dead_letter_says_where_it_comes_from() -> None:
    """Under the names of Spring's recoverer."""
    try:
        raise TimeoutError("no rates")
    except TimeoutError as raised:
        headers = headers_of(raised)
    stack = headers.pop("kafka_dlt-exception-stacktrace")
    assert b"no rates" in stack
    assert b"test_retry.py" in stack
    assert headers == {
        "kafka_dlt-original-topic": b"rides",
        "kafka_dlt-original-partition": b"3",
        "kafka_dlt-original-offset": b"42",
        "kafka_dlt-original-timestamp": b"1700000000000",
        "kafka_dlt-original-timestamp-type": b"CreateTime",
        "kafka_dlt-original-consumer-group": b"quotes",
        "kafka_dlt-exception-fqcn": b"builtins.TimeoutError",
        "kafka_dlt-exception-message": b"no rates",
        "busway_dlt-attempts": b"4",
        "busway_dlt-handler": b"surge.quote",
    }
    assert dead_letter_topic("rides", "quotes") == "rides.quotes.dlt"


def test_the_place_of_a_failure_is_in_the_handlers_own_code() -> None:
    """Not in what it called of Python's; empty where it was not called."""
    with pytest.raises(ValueError, match="Expecting") as raised:
        json.loads("{")
    assert "test_retry.py:" in place_of(raised.value)
    assert place_of(ValueError("never raised")) == ""


async def test_a_stack_begins_in_the_handler() -> None:
    """Neither busway's frames nor those of asyncio come first, for a coroutine, in a thread, and behind a cause."""

    def fails() -> None:
        raise KeyError("inner")

    def handler() -> None:
        try:
            fails()
        except KeyError as problem:
            raise ValueError("outer") from problem

    try:
        await asyncio.to_thread(handler)
    except ValueError as raised:
        raised.__traceback__ = raised.__traceback__ and raised.__traceback__.tb_next  # this function
        stack = headers_of(raised)["kafka_dlt-exception-stacktrace"].decode()
        place = place_of(raised)
    assert re.fullmatch(r" \(test_retry\.py:\d+ in handler\)", place)
    files = [line for line in stack.splitlines() if line.startswith("  File ")]
    assert [line.rpartition(" in ")[2] for line in files] == ["handler", "fails", "handler"]


def test_a_stack_of_busways_own_is_whole() -> None:
    """Where no frame is the handler's, as for a record that cannot be decoded."""
    try:
        Json(int).decode(b"x")
    except Undecodable as raised:
        raised.__traceback__ = raised.__traceback__ and raised.__traceback__.tb_next  # this function
        stack = headers_of(raised)["kafka_dlt-exception-stacktrace"].decode()
    assert "plain.py" in stack


@pytest.mark.parametrize(
    "problem", [Mute(), ValueError("x" * 10_000_000), ValueError("\ud800")], ids=["mute", "long", "surrogate"]
)
def test_an_exception_of_any_kind_fits_into_headers(problem: Exception) -> None:
    """Texts are cut, and one that raises is named."""
    headers = headers_of(problem)
    assert sum(map(len, headers.values())) < 25_000
    assert headers["kafka_dlt-exception-message"]
    assert dict(without_long_ones(list(headers.items())))["kafka_dlt-exception-message"] == b""


def test_what_is_too_large() -> None:
    """Said by the producer, or by the broker."""
    assert is_too_large(MessageTooLarge("x"))
    assert is_too_large(BrokerError(ErrorCode.MESSAGE_TOO_LARGE, "x"))
    assert not is_too_large(BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "x"))
