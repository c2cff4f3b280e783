"""Connections to SQLite files and PostgreSQL servers.

Here: drivers, limits, and connection settings.
Not here: tables and transactions (`sql`).
"""

import sqlite3
from asyncio import get_running_loop, sleep
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from busway_registry.store.interface import StoreFailed

if TYPE_CHECKING:
    import aiosqlite

WRITES: Final = "busway_writes"

_POSTGRES: Final = {
    "connect_timeout": 5,
    # A vanished server is detected after about 15 s, and so is a node by the server.
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
    "options": " ".join(
        f"-c {setting}"
        for setting in (
            "lock_timeout=10000",  # a writer waits as long as with SQLite
            "idle_in_transaction_session_timeout=30000",  # ends the transaction of a frozen node, which blocks other writers
            "tcp_keepalives_idle=5",
            "tcp_keepalives_interval=5",
            "tcp_keepalives_count=2",
            "tcp_user_timeout=15000",
        )
    ),
}
"""libpq's parameters; those in the URL take precedence."""
_POOL: Final = {"pool_size": 5, "max_overflow": 10, "pool_timeout": 10, "pool_pre_ping": True}
"""Writers share one connection, the rest is for readers. Connections that died while idle are replaced silently."""


_PATIENCE_S: Final = 10
"""Limit on waiting for a lock of SQLite."""
_LOOKS_AGAIN_S: Final = 0.02


def create_engine(url: str) -> AsyncEngine:
    """Make an engine that has not connected yet; raises `StoreFailed` for an invalid URL or a missing driver."""
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(parsed)
        given = {name: value for name, value in _POSTGRES.items() if name not in parsed.query}
        return create_async_engine(parsed, connect_args=given, isolation_level="READ COMMITTED", **_POOL)
    except (ArgumentError, ValueError):
        raise StoreFailed("it is not a URL such as postgresql://user:password@host:5432/name") from None
    except ImportError as missing:
        raise StoreFailed(f"its driver is missing: pip install 'busway[postgres]' ({missing.msg})") from None


def _sqlite(url: URL) -> AsyncEngine:
    engine = create_async_engine(url)
    event.listen(engine.sync_engine, "connect", _set_up_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return engine


def try_sqlite(url: URL) -> None:
    """Open the file once, as the asyncio driver leaks a thread on failure; raises `StoreFailed`."""
    try:
        sqlite3.connect(url.database or ":memory:").close()
    except sqlite3.Error as problem:
        raise StoreFailed(f"{problem}; its folder must exist, and the file be ours to write") from None


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # no implicit transactions by the driver
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {_PATIENCE_S * 1000}")
    connection.run_async(_write_ahead)
    cursor.execute("PRAGMA synchronous = FULL")  # a committed id must survive a power cut, or it would be reused
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


async def _write_ahead(connection: "aiosqlite.Connection") -> None:
    """Switch to WAL mode, even when several processes open a new file.

    SQLite's busy timeout does not apply: two connections that have read the file and want to change its journal mode
    would deadlock, so one fails at once.
    """
    deadline = get_running_loop().time() + _PATIENCE_S
    while True:
        try:
            await connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as problem:
            locked = problem.sqlite_errorcode in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY}
            if not locked or get_running_loop().time() > deadline:
                raise
        await sleep(_LOOKS_AGAIN_S)


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
