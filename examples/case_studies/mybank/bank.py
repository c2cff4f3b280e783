"""The bank's own side: transfers over HTTP, and notices to customers. `busway run mybank.bank:app` runs it.

Here: an outbox and an inbox on the bank's database.
Not here: alerts (`service`); the two share topics and nothing else.

A transfer writes both of its transactions and the event `Transferred` in one transaction of the database: there is never one without the
other, whether the bus can be reached or not. A notice is written in one transaction with the mark that its alert was handled: an alert
that comes again is skipped.

| path | what |
|---|---|
| `POST /transfers` | `{"from_account", "to_account", "amount"}` → 201 with the transfer |
"""

import datetime as dt
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import insert, select
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from busway import App
from busway.sql import Outbox, Sql
from busway.web import Refused, Web, application, json_response, read_json, refusal
from mybank import domain
from mybank.events import Alert, Kind, Transferred
from mybank.ledger import ACCOUNTS, METADATA, NOTICES, TRANSACTIONS, URL
from mybank.topics import ALERTS, ALERTS_CONFIGS, PARTITIONS

DATABASE_TIMEOUT_S: Final = 5.0

engine = create_async_engine(URL, pool_pre_ping=True, connect_args={"connect_timeout": int(DATABASE_TIMEOUT_S)})


@asynccontextmanager
async def ledger(app: App) -> AsyncIterator[None]:
    """The bank's tables, made where they are missing."""
    async with engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
    try:
        yield
    finally:
        await engine.dispose()


app = App(
    "mybank-bank",
    bootstrap_servers=os.environ.get("BUSWAY_BOOTSTRAP_SERVERS", "localhost:9092"),
    schema_registry=os.environ.get("BUSWAY_SCHEMA_REGISTRY", "http://localhost:8081"),
    # Alerts are written in transactions: what was not committed does not count.
    consumer={"group_instance_id": os.environ.get("MYBANK_BANK_INSTANCE"), "isolation_level": "read_committed"},
    lifespan=ledger,
)
transfers = app.topic("mybank.transfers", value=Transferred, partitions=PARTITIONS)
alerts = app.topic(ALERTS, value=Alert, partitions=PARTITIONS, configs=ALERTS_CONFIGS, read_only=True)
outbox = app.extend(Outbox(engine))
inbox = Sql(engine)


@app.subscribe(alerts, sql=inbox, where=lambda record: record.value is not None)
async def note(alert: Alert, tx: AsyncConnection) -> None:
    """Put the alert into the customer's letter box."""
    what = "a" if alert.reason.value == "SINGLE" else "your hour with this"
    await tx.execute(
        insert(NOTICES).values(
            alert_id=alert.alert_id,
            account_id=alert.account_id,
            text=f"{what} {alert.kind.value.lower()}: {alert.amount} {alert.currency}, from {alert.threshold} on you wanted to know",
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What a customer orders."""

    from_account: str
    to_account: str
    amount: Decimal


async def book(order: Transfer) -> Transferred:
    """Both transactions and the event, or none of them.

    Raises:
        Refused: 422 for what cannot be, naming the field.
    """
    try:
        amount = domain.check_money("amount", order.amount)
    except domain.Impossible as problem:
        raise Refused(422, str(problem)) from None
    if order.from_account == order.to_account:
        raise Refused(422, f"to_account: {order.to_account!r} is from_account, too; name another")
    await outbox.prepare(transfers)
    async with engine.begin() as tx:
        # Locked, so that transfers of an account are published in the order of their commits.
        wanted = select(ACCOUNTS).where(ACCOUNTS.c.id.in_([order.from_account, order.to_account]))
        rows = {row.id: row for row in await tx.execute(wanted.order_by(ACCOUNTS.c.id).with_for_update())}
        for name, account in (("from_account", order.from_account), ("to_account", order.to_account)):
            if account not in rows:
                raise Refused(422, f"{name}: there is no account {account!r}")
        currency = rows[order.from_account].currency
        if currency != rows[order.to_account].currency:
            raise Refused(
                422,
                f"to_account: {order.to_account!r} is in {rows[order.to_account].currency}, from_account in {currency}; "
                "both must be in one currency",
            )
        booked_at = dt.datetime.now(dt.UTC)
        ids = [
            await tx.scalar(
                insert(TRANSACTIONS)
                .values(account_id=account, kind=kind.value, amount=amount, currency=currency, booked_at=booked_at)
                .returning(TRANSACTIONS.c.id)
            )
            for account, kind in ((order.from_account, Kind.TRANSFER), (order.to_account, Kind.DEPOSIT))
        ]
        done = Transferred(
            transfer_id=str(uuid.uuid4()),
            from_account=order.from_account,
            to_account=order.to_account,
            amount=amount,
            currency=currency,
            transaction_ids=[int(transaction_id) for transaction_id in ids if transaction_id is not None],
            booked_at=booked_at,
        )
        await outbox.send(tx, transfers, done, key=order.from_account)
    return done


async def transfer(request: Request) -> Response:
    """`POST /transfers`."""
    return json_response(await book(await read_json(request, Transfer)), 201)


async def _away(request: Request, problem: Any) -> Response:
    return refusal(503, "the database cannot be reached; whether the transfer was booked, its table says")


web = app.extend(
    Web(
        application(
            [Route("/transfers", transfer, methods=["POST"])],
            handlers={OperationalError: _away, InterfaceError: _away},
        )
    )
)
