"""The pure parts: what is put off and for how long, headers as text, outages distinguished from mistakes, imports that stay small."""

import sqlite3

import pytest
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted

from busway import BrokerError, DeliveryFailed, MessageTooLarge
from busway.sql.headers import pack_headers, unpack_headers
from busway.sql.outages import is_outage, words
from busway.sql.relay_backoff import MAX_HELD, Holds
from busway_protocol.errors import ErrorCode


def test_a_record_that_is_refused_holds_its_key() -> None:
    """Its key waits, longer each time; when it succeeds, it is forgotten."""
    holds = Holds(lambda: 0.0)
    refused = MessageTooLarge("too large")
    assert holds.failed("t", b"k", 1, refused, 100.0) == pytest.approx(0.1)
    assert holds.now(100.05).keys == {("t", b"k")}
    assert holds.next_s(100.05) == pytest.approx(100.1)
    assert holds.now(100.2).keys == frozenset()
    assert holds.failed("t", b"k", 1, refused, 100.2) == pytest.approx(0.2)
    assert not holds.now(100.3).topics
    holds.succeeded("t", b"k", 1)
    assert holds.failed("t", b"k", 1, refused, 101.0) == pytest.approx(0.1)


def test_rows_without_a_key_are_held_by_themselves() -> None:
    """They have no order to keep; a ValueError is the row's own fault."""
    holds = Holds(lambda: 0.0)
    holds.failed("t", None, 7, ValueError("partition 9 does not exist"), 0.0)
    held = holds.now(0.05)
    assert (held.positions, held.keys, held.topics) == ({7}, frozenset(), frozenset())


def test_other_failures_hold_the_topic_once() -> None:
    """Several rows of a round fail for the same reason: that is one wait, not a longer one each."""
    holds = Holds(lambda: 0.0)
    for position in range(5):
        holds.failed("t", b"k%d" % position, position, BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t"), 0.0)
    assert holds.now(0.05).topics == {"t"}
    assert holds.failed("t", b"k", 9, DeliveryFailed("t"), 1.0) == pytest.approx(0.2)


def test_too_many_keys_hold_their_topic() -> None:
    """The list has a bound."""
    holds = Holds(lambda: 0.0)
    for number in range(MAX_HELD + 5):
        holds.failed("t", b"%d" % number, number, MessageTooLarge("too large"), 0.0)
    held = holds.now(0.05)
    assert (len(held.keys), held.topics) == (MAX_HELD, {"t"})


def test_a_wait_that_ends_while_the_relay_looks_wakes_it() -> None:
    """The row was left out of the look, so the relay must look again at once, and not when its interval has passed."""
    holds = Holds(lambda: 0.0)
    holds.failed("t", b"k", 1, MessageTooLarge("too large"), 100.0)
    looked_s, rests_s = 100.09, 100.2
    assert holds.now(looked_s).keys
    assert holds.next_s(looked_s) < rests_s
    assert holds.next_s(rests_s) == float("inf"), "it was not left out of a look at that time"


def test_headers_come_back() -> None:
    """Any bytes, no bytes, any text, in their order."""
    headers = [("a", b"\x00\xff"), ("ü", None), ("a", b"")]
    assert unpack_headers(pack_headers(headers)) == headers


class _Driver(Exception):
    """As psycopg's: with a code of the server, or none."""

    def __init__(self, sqlstate: str | None) -> None:
        super().__init__("what the server said\nand more")
        self.sqlstate = sqlstate


_OperationalError = type("OperationalError", (_Driver,), {})


@pytest.mark.parametrize(
    ("cause", "away"),
    [
        (_OperationalError(None), True),
        (_Driver(None), False),
        (_Driver("57P01"), True),
        (_Driver("53300"), True),
        (_Driver("23505"), False),
        (_Driver("40001"), False),
        (_Driver("42P01"), False),
    ],
)
def test_an_outage_of_postgresql_is_told_from_a_mistake(cause: Exception, away: bool) -> None:
    """By the class of SQLSTATE."""
    problem = OperationalError("SELECT 1", {}, cause)
    assert is_outage(problem) is away
    assert words(problem) == "what the server said"


def test_an_outage_of_sqlite_is_told_from_a_mistake() -> None:
    """A lock is waited for, a missing table is not; SQLAlchemy's own verdict and a pool without connections count too."""
    connection = sqlite3.connect(":memory:")
    with pytest.raises(sqlite3.OperationalError) as missing:
        connection.execute("SELECT * FROM nothing")
    connection.close()
    assert not is_outage(OperationalError("", {}, missing.value))
    locked = sqlite3.OperationalError("database is locked")
    locked.sqlite_errorcode = sqlite3.SQLITE_BUSY
    assert is_outage(OperationalError("", {}, locked))
    assert is_outage(DBAPIError("", {}, Exception("gone"), connection_invalidated=True))
    assert is_outage(PoolExhausted("no connection"))
    assert not is_outage(ValueError("other"))
