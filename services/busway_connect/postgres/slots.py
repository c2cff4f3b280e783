"""The server's side of a connector: how to connect, its replication slot, and what the server's refusals mean.

What lives here: checking the slot, and the translation of the driver's errors. What does not: the publication (`publication`), reading
rows or the log (`reader`).
"""

import re
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg.conninfo import make_conninfo

from busway_connect.connector import ConfigInvalid, Retriable
from busway_connect.postgres.catalog import SESSION, Connection
from busway_connect.postgres.positions import lsn_number, lsn_text
from busway_connect.postgres.settings import Settings

PLUGIN: Final = "pgoutput"
CONNECT_TIMEOUT_S: Final = 10
SILENT_TIMEOUT_MS: Final = 60_000
"""A server that vanished without a word is given up after this (Linux), as the server gives up a reader (wal_sender_timeout)."""
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
"""The texts of PostgreSQL to 15 and of those since; a login brings no code."""
_WAL_LEVEL: Final = re.compile('logical decoding requires "?wal_level')
_SLOTS_SPENT: Final = "all replication slots are in use"
_SLOT_LOST: Final = re.compile(
    "can no longer (get changes from|access) replication slot|cannot read from logical replication slot"
)


class PositionLost(Exception):
    """The server no longer has the log from the stored offset on; to go on would lose changes without a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A replication slot as the server shows it."""

    plugin: str | None
    database: str | None
    lost: bool
    confirmed_flush_lsn: int


def conninfo(settings: Settings) -> str:
    """How to connect."""
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
    """The connector's own error for one of a driver's; other errors as they are."""
    if not isinstance(problem, psycopg.Error):
        return problem
    text = " ".join(str(problem).split())
    for sign, setting in _REFUSED_AT_LOGIN.items():
        if sign in text and isinstance(problem, psycopg.OperationalError):
            return ConfigInvalid({setting: text})
    if _WAL_LEVEL.search(text):
        return ConfigInvalid({"plugin.name": f"{text}; set wal_level = logical and restart the server"})
    if _SLOTS_SPENT in text:
        return ConfigInvalid({"slot.name": f"{text}; raise max_replication_slots or drop a slot that nobody reads"})
    if _SLOT_LOST.search(text):
        return PositionLost(text)
    if problem.sqlstate == _PRIVILEGE or any(one in text for one in _NO_REPLICATION):
        return ConfigInvalid(
            {"database.user": f"{text}; the user needs REPLICATION, SELECT and, to make a publication, ownership"}
        )
    return Retriable(text)


def find_slot(connection: Connection, name: str) -> Slot | None:
    """The slot of this name."""
    row = connection.execute(
        "SELECT plugin, database, wal_status, COALESCE(confirmed_flush_lsn, '0/0')::text FROM pg_catalog.pg_replication_slots"
        " WHERE slot_name = %s",
        (name,),
    ).fetchone()
    if row is None:
        return None
    return Slot(plugin=row[0], database=row[1], lost=row[2] == "lost", confirmed_flush_lsn=lsn_number(row[3]))


def check_slot(slot: Slot, settings: Settings) -> None:
    """Whether the slot can be this connector's.

    Raises:
        ConfigInvalid: it is of another plugin or database.
    """
    if slot.plugin != PLUGIN:
        raise ConfigInvalid(
            {"slot.name": f"{settings.slot} is a slot of {slot.plugin or 'physical replication'}, not of {PLUGIN}"}
        )
    if slot.database != settings.database:
        raise ConfigInvalid(
            {"slot.name": f"{settings.slot} belongs to the database {slot.database}, not {settings.database}"}
        )


def require_log(slot: Slot | None, lsn: int | None, settings: Settings) -> None:
    """Whether the server still has all of the log from `lsn` on; None where nothing was read yet.

    Raises:
        PositionLost: the slot is gone, was invalidated, or was made or moved behind `lsn`.
    """
    if lsn is None:
        if slot is not None and slot.lost:
            raise PositionLost(
                f"the server dropped the log that the slot {settings.slot} needs (max_slot_wal_keep_size); SELECT"
                f" pg_drop_replication_slot('{settings.slot}') and start again, or set snapshot.mode=when_needed"
            )
        return
    remedy = (
        "changes may be missing, so that this connector does not go on; either delete its offsets (stop it, then DELETE"
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
    """Drop a slot, if it is there, and end whoever reads it."""
    row = connection.execute("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", (name,)).fetchone()
    if row is None:
        return
    if row[0] is not None:
        connection.execute("SELECT pg_terminate_backend(%s, %s)", (row[0], CONNECT_TIMEOUT_S * 1000))
    connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))
