"""Retrying while a database is unreachable; an outage costs the record no attempt.

Here: telling outages from mistakes, and backoff.
Not here: queries.
"""

import logging
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolExhausted

from busway.app.model.retry import Exponential
from busway.errors import BrokerError, BuswayError
from busway.net.clock import REAL_TIME
from busway.net.machine import current_machine

logger: logging.Logger = logging.getLogger("busway.sql")
T = TypeVar("T")

WAITS: Final = Exponential(0.1, 2.0, 10.0)
"""Backoff in seconds for a database or a broker; attempts are unlimited."""
_AWAY_CLASSES: Final = ("08", "53", "57P", "25006")
"""SQLSTATE prefixes: connection lost, no resources, shutdown or startup, read-only after failover."""
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR})


class DatabaseUnreachable(BuswayError):
    """The database went away during a handler: its work is rolled back, the record is retried without limit."""


def is_outage(problem: BaseException) -> bool:
    """Return whether the database is unreachable or busy. A retry may succeed."""
    if isinstance(problem, PoolExhausted | ConnectionError | TimeoutError | DatabaseUnreachable):
        return True
    if not isinstance(problem, DBAPIError):
        return False
    if problem.connection_invalidated:
        return True
    cause: Any = problem.orig
    code = getattr(cause, "sqlite_errorcode", None)
    if isinstance(code, int):
        return code & 0xFF in _BUSY
    if isinstance(cause, sqlite3.Error):
        return False
    if hasattr(cause, "sqlstate"):
        state = cause.sqlstate
        # A failed or broken connection is an OperationalError without a SQLSTATE.
        return type(cause).__name__ == "OperationalError" if state is None else state.startswith(_AWAY_CLASSES)
    return False


def is_broker_outage(problem: BaseException) -> bool:
    return isinstance(problem, BuswayError) and not (isinstance(problem, BrokerError) and not problem.retriable)


def words(problem: BaseException) -> str:
    return str(getattr(problem, "orig", None) or problem).strip().splitlines()[0] if str(problem) else repr(problem)


async def through_outages(
    work: Callable[[], Awaitable[T]], what: str, away: Callable[[BaseException], bool] = is_outage
) -> T:
    """Call `work` with backoff until what it needs is reachable. Return its result.

    Attempts are unlimited; cancel the task to end them.
    """
    attempt = 1
    while True:
        try:
            return await work()
        except (SQLAlchemyError, BuswayError, OSError) as problem:
            if not away(problem):
                raise
            wait_s = WAITS.wait_s(attempt, current_machine().chance.random())
            logger.warning("%s waits %.1f s: %s", what, wait_s, words(problem))
        attempt += 1
        await REAL_TIME.sleep(wait_s)
