"""The bank's database: its tables, as the bank's own code and the demo make them.

Here: tables, and where the database is.
Not here: the connector's settings (`connector.json`), transfers (`bank`).

The tables are those of an old system: they check nothing, so what is read from them is checked (`domain.booked`).
"""

import os
from typing import Final

from sqlalchemy import BigInteger, Column, DateTime, Identity, MetaData, Numeric, Table, Text, text

URL: Final = os.environ.get("MYBANK_DATABASE", "postgresql+psycopg://postgres@localhost:5432/postgres")
METADATA: Final = MetaData()
ACCOUNTS: Final = Table(
    "accounts",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("currency", Text, nullable=False),
)
TRANSACTIONS: Final = Table(
    "transactions",
    METADATA,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("account_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("amount", Numeric(14, 2), nullable=False),
    Column("currency", Text, nullable=False),
    Column("booked_at", DateTime(timezone=True), nullable=False, server_default=text("clock_timestamp()")),
)
NOTICES: Final = Table(
    "notices",
    METADATA,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("alert_id", Text, nullable=False),
    Column("account_id", Text, nullable=False),
    Column("text", Text, nullable=False),
)
"""The customer's letter box. Nothing here keeps an alert from being noted twice: the inbox does."""
