"""Customers who pay: accounts, thresholds, and transactions that are committed one by one.

Here: the load, the same for the same seed.
Not here: starting anything (`demo`), what must come of it (`audit`).

Each writer has accounts of its own, so that the transactions of an account are committed in the order in which they were made. A few rows
are nonsense, as rows of old systems are.
"""

import asyncio
import datetime as dt
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import psycopg

from mybank.events import Kind

ACCOUNTS_OF_A_WRITER: Final = 12
NONSENSE_OF: Final = 150
"""One row of so many is nonsense."""
RETRY_S: Final = 0.1
AWAY_S: Final = 20.0
"""A database that is away for longer ends the load."""
BEGIN: Final = dt.datetime(2026, 6, 1, 8, tzinfo=dt.UTC)
INSERT: Final = "INSERT INTO transactions (account_id, kind, amount, currency, booked_at) VALUES (%s, %s, %s, %s, %s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A customer's account, and what its owner wants to know."""

    id: str
    owner: str
    currency: str
    single: dict[str, str] = field(default_factory=dict)
    hourly: str | None = None


def accounts(writer: int, seed: int) -> list[Account]:
    """The accounts of a writer: half of their owners have set thresholds."""
    chance = random.Random(f"{seed} accounts {writer}")  # noqa: S311 - a load that repeats, no secret
    opened = []
    for number in range(ACCOUNTS_OF_A_WRITER):
        asks = number % 2 == 0
        opened.append(
            Account(
                id=f"{'DEFRNLCH'[2 * (writer % 4) :][:2]}{writer:02d}-{number:04d}",
                owner=f"customer {writer}.{number}",
                currency="CHF" if writer % 4 == 3 else "EUR",
                single={"CARD": f"{chance.randrange(60, 200)}.00", "TRANSFER": "750.00"} if asks else {},
                hourly=f"{chance.randrange(900, 2500)}.00" if number % 3 == 0 else None,
            )
        )
    return opened


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is inserted into `transactions`."""

    account_id: str
    kind: str
    amount: Decimal
    currency: str
    booked_at: dt.datetime


def rows(opened: Sequence[Account], writer: int, seed: int) -> Iterator[Row]:
    """The transactions of a writer's accounts, without end; their time goes on by a few minutes for each account."""
    chance = random.Random(f"{seed} rows {writer}")  # noqa: S311 - a load that repeats, no secret
    for number in itertools.count():
        account = opened[number % len(opened)]
        kind = chance.choices(list(Kind), weights=(3, 10, 2, 2))[0]
        cents = min(int(chance.lognormvariate(8.2, 1.2)) + 1, 900_000)
        row = Row(
            account_id=account.id,
            kind=kind.value,
            amount=Decimal(cents).scaleb(-2),
            currency=account.currency,
            booked_at=BEGIN + dt.timedelta(minutes=4 * (number // len(opened)), seconds=chance.randrange(200)),
        )
        yield _nonsense(row, chance) if chance.randrange(NONSENSE_OF) == 0 else row


def _nonsense(row: Row, chance: random.Random) -> Row:
    given = {name: getattr(row, name) for name in ("account_id", "kind", "amount", "currency", "booked_at")}
    wrong: dict[str, Any] = chance.choice([{"amount": -row.amount}, {"amount": Decimal("0.00")}, {"currency": "XXX"}])
    return Row(**{**given, **wrong})


class Writer:
    """Commits the transactions of its accounts, one after the other.

    A commit whose answer did not come may have happened or not; the row is then given up, and the database knows.

    Args:
        dsn: of the database.
        number: which writer.
        seed: of the load.
        per_s: transactions in a second.
    """

    def __init__(self, dsn: str, number: int, *, seed: int, per_s: float) -> None:
        self.accounts = accounts(number, seed)
        self.committed = 0
        self.doubtful = 0
        self._dsn = dsn
        self._rows = rows(self.accounts, number, seed)
        self._per_s = per_s

    async def run(self, count: int) -> None:
        """So many attempts at the pace.

        Raises:
            psycopg.Error: the database was away for too long.
        """
        loop = asyncio.get_running_loop()
        begun, done = loop.time(), 0
        while done < count:
            try:
                async with asyncio.timeout(AWAY_S):
                    connection = await self._connection()
                async with connection:
                    while done < count:
                        row = next(self._rows)
                        done += 1
                        self.doubtful += 1
                        given = (row.account_id, row.kind, row.amount, row.currency, row.booked_at)
                        await connection.execute(INSERT, given)
                        self.doubtful -= 1
                        self.committed += 1
                        if (early := begun + done / self._per_s - loop.time()) > 0:
                            await asyncio.sleep(early)
                        else:
                            begun = loop.time() - done / self._per_s  # what was missed is not caught up
            except psycopg.OperationalError:
                continue

    async def _connection(self) -> "psycopg.AsyncConnection[Any]":
        while True:
            try:
                return await psycopg.AsyncConnection.connect(self._dsn, autocommit=True, connect_timeout=2)
            except psycopg.OperationalError:
                await asyncio.sleep(RETRY_S)


async def open_accounts(dsn: str, opened: Sequence[Account]) -> None:
    """Insert accounts; the bank's tables must be there."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection, connection.cursor() as cursor:
        await cursor.executemany(
            "INSERT INTO accounts (id, owner, currency) VALUES (%s, %s, %s)",
            [(account.id, account.owner, account.currency) for account in opened],
        )
