"""A connector's server side: connecting, its replication slot, and the server's errors.

Here: checking the slot, waiting for its release, translating the driver's errors.
Not here: the publication (`publication`), rows and log (`reader`).
"""

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg.conninfo import make_conninfo

from busway_connect.connector import ConfigInvalid, Retriable
from busway_connect.postgres.catalog import SESSION, Connection
from busway_connect.postgres.positions import lsn_number, lsn_text
from busway_connect.postgres.settings import Settings

logger = logging.getLogger("busway.connect.postgres")
PLUGIN: Final = "pgoutput"
CONNECT_TIMEOUT_S: Final = 10
SILENT_TIMEOUT_MS: Final = 60_000
"""A vanished server is detected after this (Linux), like wal_sender_timeout for readers."""
_FIRST_LOOK_S: Final = 0.05
_LOOK_S: Final = 1.0
"""Longest interval of polling an occupied slot."""
_REFUSED_AT_LOGIN: Final = {
    "password authentication failed": "database.password",
    "no password supplied": "database.password",
    "no pg_hba.conf entry": "database.user",
    'role "': "database.user",
    'database "': "database.dbname",
    "sslmode": "database.sslmode",
}
_PRIVILEGE: Final = "42501"
_NO_REPLICATION: Final = ("must be superuser", "permission denied to start WAL sender")
"""Texts of PostgreSQL up to 15 and later. A failed login has no SQLSTATE."""
_WAL_LEVEL: Final = re.compile('logical decoding requires "?wal_level')
_SLOTS_SPENT: Final = "all replication slots are in use"
_SLOT_LOST: Final = re.compile(
    "can no longer (get changes from|access) replication slot|cannot read from logical replication slot"
)


class PositionLost(Exception):
    """The server lacks the log from the stored offset. Continuing would silently lose changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    plugin: str | None
    database: str | None
    lost: bool
    confirmed_flush_lsn: int
    active_pid: int | None


def conninfo(settings: Settings) -> str:
    return make_conninfo(
        host=settings.host,
        port=settings.port,
        user=settings.user,
        password=settings.password,
        dbname=settings.database,
        sslmode=settings.sslmode,
        **settings.ssl_files,
        connect_timeout=CONNECT_TIMEOUT_S,
        keepalives_idle=30,
        keepalives_interval=10,
        keepalives_count=3,
        tcp_user_timeout=SILENT_TIMEOUT_MS,
        application_name=f"busway connect {settings.prefix}",
        options=SESSION,
    )


def translated(problem: Exception) -> Exception:
    """Convert a driver's error to the connector's; other errors stay."""
    if not isinstance(problem, psycopg.Error):
        return problem
    text = " ".join(str(problem).split())
    for sign, setting in _REFUSED_AT_LOGIN.items():
        if sign in text and isinstance(problem, psycopg.OperationalError):
            return ConfigInvalid({setting: text})
    if _WAL_LEVEL.search(text):
        return ConfigInvalid({"plugin.name": f"{text}; set wal_level = logical and restart the server"})
    if _SLOTS_SPENT in text:
        return ConfigInvalid({"slot.name": f"{text}; raise max_replication_slots or drop an unused slot"})
    if _SLOT_LOST.search(text):
        return PositionLost(text)
    if problem.sqlstate == _PRIVILEGE or any(phrase in text for phrase in _NO_REPLICATION):
        return ConfigInvalid(
            {"database.user": f"{text}; the user needs REPLICATION, SELECT and, to make a publication, ownership"}
        )
    return Retriable(text)


def find_slot(connection: Connection, name: str) -> Slot | None:
    row = connection.execute(
        "SELECT plugin, database, wal_status, COALESCE(confirmed_flush_lsn, '0/0')::text, active_pid"
        " FROM pg_catalog.pg_replication_slots WHERE slot_name = %s",
        (name,),
    ).fetchone()
    if row is None:
        return None
    return Slot(
        plugin=row[0],
        database=row[1],
        lost=row[2] == "lost",
        confirmed_flush_lsn=lsn_number(row[3]),
        active_pid=row[4],
    )


def wait_until_free(
    connection: Connection,
    slot: Slot | None,
    settings: Settings,
    *,
    waiting: Callable[[], None],
    pause: Callable[[float], None],
) -> Slot | None:
    """Wait until nothing reads the slot.

    The WAL sender of a killed connector or vanished host remains for at most `wal_sender_timeout`. The wait is as long
    as Debezium's retries: `slot.max.retries` times `slot.retry.delay.ms`.

    Args:
        waiting: called once before the first pause.
        pause: sleeps for so many seconds; its exception ends the wait.

    Returns:
        The slot's new state; None if it is gone.

    Raises:
        Retriable: still occupied.
    """
    if slot is None or slot.active_pid is None:
        return slot
    every_s = settings.slot_retry_delay_ms / 1000
    most_s = settings.slot_max_retries * every_s
    begun, said_s, look_s = time.monotonic(), 0.0, _FIRST_LOOK_S
    if most_s:
        waiting()
        logger.warning(
            "the replication slot %s is active for PID %d, as after a kill until the server has noticed; waiting up to %g s"
            " (slot.max.retries times slot.retry.delay.ms)",
            settings.slot,
            slot.active_pid,
            most_s,
        )
    while slot is not None and slot.active_pid is not None:
        waited_s = time.monotonic() - begun
        if waited_s >= most_s:
            raise Retriable(_in_use(connection, slot.active_pid, settings))
        if waited_s - said_s >= every_s:
            said_s = waited_s
            logger.info(
                "the replication slot %s is still active for PID %d after %.1f s",
                settings.slot,
                slot.active_pid,
                waited_s,
            )
        pause(min(look_s, most_s - waited_s))
        look_s = min(look_s * 2, _LOOK_S)
        slot = find_slot(connection, settings.slot)
    logger.info("the replication slot %s is free after %.1f s", settings.slot, time.monotonic() - begun)
    return slot


def _in_use(connection: Connection, pid: int, settings: Settings) -> str:
    row = connection.execute("SELECT current_setting('wal_sender_timeout')").fetchone()
    assert row is not None
    patience = "0, which is never" if row[0] == "0" else row[0]
    return (
        f"replication slot {settings.slot} is active for PID {pid}, longer than slot.max.retries={settings.slot_max_retries} times"
        f" slot.retry.delay.ms={settings.slot_retry_delay_ms}; if another connector reads it, give each its own slot.name; if its reader was"
        f" killed, the server ends it after wal_sender_timeout ({patience}), or at once by SELECT pg_terminate_backend({pid})"
    )


def check_slot(slot: Slot, settings: Settings) -> None:
    """Check that the slot fits this connector; raises `ConfigInvalid` for another plugin or database."""
    if slot.plugin != PLUGIN:
        raise ConfigInvalid(
            {"slot.name": f"{settings.slot} is a slot of {slot.plugin or 'physical replication'}, not of {PLUGIN}"}
        )
    if slot.database != settings.database:
        raise ConfigInvalid(
            {"slot.name": f"{settings.slot} belongs to the database {slot.database}, not {settings.database}"}
        )


def require_log(slot: Slot | None, lsn: int | None, settings: Settings) -> None:
    """Check that the server has the log from `lsn` on; None if nothing was read yet.

    Raises:
        PositionLost: the slot is gone, invalidated, or begins after `lsn`.
    """
    if lsn is None:
        if slot is not None and slot.lost:
            raise PositionLost(
                f"the server dropped the log that the slot {settings.slot} needs (max_slot_wal_keep_size); SELECT"
                f" pg_drop_replication_slot('{settings.slot}') and start again, or set snapshot.mode=when_needed"
            )
        return
    remedy = (
        "changes may be missing, so this connector stops; either delete its offsets (stop it, then DELETE"
        " /connectors/NAME/offsets) and start it with a new snapshot, or set snapshot.mode=when_needed"
    )
    if slot is None:
        raise PositionLost(f"the replication slot {settings.slot} is gone: {remedy}")
    if slot.lost:
        raise PositionLost(
            f"the server dropped the log that the slot {settings.slot} still needed (max_slot_wal_keep_size): {remedy}; drop"
            f" the slot before"
        )
    if slot.confirmed_flush_lsn > lsn:
        raise PositionLost(
            f"the slot {settings.slot} begins at {lsn_text(slot.confirmed_flush_lsn)}, behind the stored offset"
            f" {lsn_text(lsn)}; it was made again or read by another: {remedy}"
        )


def drop_slot(connection: Connection, name: str) -> None:
    """Drop a slot, if it exists, and terminate its active backend."""
    row = connection.execute("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", (name,)).fetchone()
    if row is None:
        return
    if row[0] is not None:
        connection.execute("SELECT pg_terminate_backend(%s, %s)", (row[0], CONNECT_TIMEOUT_S * 1000))
    connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))
