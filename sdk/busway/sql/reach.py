"""A database that cannot be reached is waited for; it says nothing against the record in hand.

What lives here: telling an outage from a mistake, and waiting with growing pauses. What does not: what is asked of the database.
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

logger = logging.getLogger("busway.sql")
T = TypeVar("T")

WAITS: Final = Exponential(0.1, 2.0, 10.0)
"""Seconds between attempts to reach a database or a broker; there is no last attempt."""
_AWAY_CLASSES: Final = ("08", "53", "57P", "25006")
"""PostgreSQL's: connection lost, no resources, shut down or starting, read-only since a failover."""
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR})


class DatabaseUnreachable(BuswayError):
    """The database went away in the middle of a handler, whose work is rolled back; the record is tried again without end."""


def is_away(problem: BaseException) -> bool:
    """Whether the database is out of reach or busy, so that the same call may succeed later."""
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
        # A connection that could not be made, or broke, comes as an OperationalError that no server gave a code.
        return type(cause).__name__ == "OperationalError" if state is None else state.startswith(_AWAY_CLASSES)
    return False


def is_broker_away(problem: BaseException) -> bool:
    """Whether brokers cannot answer right now."""
    return isinstance(problem, BuswayError) and not (isinstance(problem, BrokerError) and not problem.retriable)


def words(problem: BaseException) -> str:
    """What the driver said, without the statement."""
    return str(getattr(problem, "orig", None) or problem).strip().splitlines()[0] if str(problem) else repr(problem)


async def patiently(work: Callable[[], Awaitable[T]], what: str, away: Callable[[BaseException], bool] = is_away) -> T:
    """What `work` returns, called again for as long as what it needs is away; ended by cancelling."""
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
