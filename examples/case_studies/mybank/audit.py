"""What must have come of the transactions, by the database alone: the rules once more, in plain SQL.

Here: the queries.
Not here: the rules as the service has them (`domain`), with which they share nothing.

`wishes` holds what owners set: from transaction `from_id` on, `kind` (NULL for the hour) is alerted from `amount` on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import psycopg

WISHES: Final = """
CREATE TABLE IF NOT EXISTS wishes (account_id text NOT NULL, kind text, amount numeric(14, 2) NOT NULL, from_id bigint NOT NULL)
"""
_GOOD: Final = """
CREATE TEMPORARY VIEW good AS
SELECT t.* FROM transactions t JOIN accounts a ON a.id = t.account_id AND a.currency = t.currency
WHERE t.amount > 0 AND t.kind IN ('TRANSFER', 'CARD', 'WITHDRAWAL', 'DEPOSIT')
"""
_ALERTS: Final = """
WITH hours AS (
    SELECT id, account_id, sum(amount) OVER (
        PARTITION BY account_id ORDER BY booked_at
        RANGE BETWEEN INTERVAL '59 minutes 59.999999 seconds' PRECEDING AND CURRENT ROW
    ) >= (SELECT w.amount FROM wishes w WHERE w.account_id = good.account_id AND w.kind IS NULL) AS over
    FROM good WHERE kind <> 'DEPOSIT'
),
crossings AS (
    SELECT id, over AND NOT coalesce(lag(over) OVER (PARTITION BY account_id ORDER BY id), false) AS crosses FROM hours
)
SELECT id || ':SINGLE' FROM good t WHERE amount >= coalesce(
    (SELECT w.amount FROM wishes w WHERE w.account_id = t.account_id AND w.kind = t.kind AND w.from_id <= t.id
     ORDER BY w.from_id DESC LIMIT 1), 1000)
UNION ALL SELECT id || ':HOURLY' FROM crossings WHERE crosses
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What must have come of what is in the database.

    Attributes:
        transactions: rows.
        nonsense: rows among them that cannot be true: a dead letter each.
        alerts: their ids.
        notices: how often each alert is in the customers' letter box.
    """

    transactions: int
    nonsense: int
    alerts: frozenset[str]
    notices: Mapping[str, int]


async def wish(dsn: str, account_id: str, single: Mapping[str, Decimal], hourly: Decimal | None) -> None:
    """Note what an owner has set: in force from the next transaction on."""
    amounts = [*single.items(), *([(None, hourly)] if hourly is not None else [])]
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await connection.execute(WISHES)
        for kind, amount in amounts:
            await connection.execute(
                "INSERT INTO wishes SELECT %s, %s, %s, coalesce(max(id), 0) + 1 FROM transactions",
                (account_id, kind, amount),
            )


async def expected(dsn: str) -> Expected:
    """Ask the database."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:

        async def rows(query: str) -> list[tuple[Any, ...]]:
            return await (await connection.execute(query.encode())).fetchall()

        await connection.execute(WISHES)
        await connection.execute(_GOOD)
        every = (await rows("SELECT count(*) FROM transactions"))[0][0]
        good = (await rows("SELECT count(*) FROM good"))[0][0]
        return Expected(
            transactions=every,
            nonsense=every - good,
            alerts=frozenset(row[0] for row in await rows(_ALERTS)),
            notices=dict(await rows("SELECT alert_id, count(*) FROM notices GROUP BY alert_id")),
        )


async def booked(dsn: str, account_id: str) -> frozenset[int]:
    """The ids of an account's transactions."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        cursor = await connection.execute("SELECT id FROM transactions WHERE account_id = %s", (account_id,))
        return frozenset(row[0] for row in await cursor.fetchall())
