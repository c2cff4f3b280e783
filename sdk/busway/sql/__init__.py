"""Inbox and outbox in a service's database: records handled once, and sent only on commit.

They need the `sql` extra (`postgres` for PostgreSQL).
"""

from busway.extras import need

need("sql", "busway.sql")

from busway.sql.inbox import Sql
from busway.sql.outages import DatabaseUnreachable
from busway.sql.outbox import Outbox, OutboxStatus
from busway.sql.relay import OUTBOX_ID, Relay
from busway.sql.tables import TABLES, Tables, create_all

__all__ = [
    "OUTBOX_ID",
    "TABLES",
    "DatabaseUnreachable",
    "Outbox",
    "OutboxStatus",
    "Relay",
    "Sql",
    "Tables",
    "create_all",
]
