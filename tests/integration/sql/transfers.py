"""A bank for tests that end its process: moves money between accounts in its database and tells of it through the outbox."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from busway import App
from busway.app.extending.extension import Extension
from busway.sql import Outbox, Sql

ACCOUNTS = 8
START = 1_000


class Crash(Extension):
    """Ends this process without warning when a step is reached for the nth time."""

    def __init__(self, point: str, times: int) -> None:
        self.point = point
        self.left = times

    def at(self, point: str) -> None:
        if point == self.point:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    async def reached(self, point: str, topic: str, partition: int, offset: int) -> None:
        self.at(point)


def build(url: str, bootstrap: str, crash: Crash | None = None, **options: Any) -> App:
    """The bank on a database."""
    engine = create_async_engine(url)

    @contextlib.asynccontextmanager
    async def disposed(_app: App) -> AsyncIterator[None]:
        yield
        await engine.dispose()

    app = App(
        "transfers",
        bootstrap,
        lifespan=disposed,
        commit_interval_s=0.02,
        drain_timeout_s=5,
        consumer={"session_timeout_ms": 500, "heartbeat_interval_ms": 100},
    )
    transfers = app.topic("transfers", value=dict, format="json", partitions=2)
    booked = app.topic("booked", value=dict, format="json", partitions=2)
    outbox = app.extend(Outbox(engine))
    if crash is not None:
        app.extend(crash)
        event.listen(engine.sync_engine, "before_cursor_execute", _watching(crash))

    @app.subscribe(transfers, concurrency=4, sql=Sql(engine, **options))
    async def move(transfer: dict, tx: AsyncConnection) -> None:  # type: ignore[type-arg]
        for account, amount in sorted([(transfer["from"], -transfer["amount"]), (transfer["to"], transfer["amount"])]):
            change = text("UPDATE accounts SET balance = balance + :amount WHERE id = :id")
            await tx.execute(change, {"amount": amount, "id": account})
        await outbox.send(tx, booked, transfer, key=str(transfer["from"]))
        if crash is not None:
            crash.at("in-transaction")

    return app


def _watching(crash: Crash) -> Any:
    def before(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("DELETE FROM busway_outbox"):
            crash.at("published")

    return before


async def open_accounts(engine: AsyncEngine) -> None:
    """Each with the same balance."""
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)"))
        for number in range(ACCOUNTS):
            await connection.execute(text("INSERT INTO accounts VALUES (:id, :start)"), {"id": number, "start": START})


if "TRANSFERS_URL" in os.environ:
    _point, _, _times = os.environ.get("TRANSFERS_CRASH", "").partition(":")
    app = build(
        os.environ["TRANSFERS_URL"],
        os.environ["BUSWAY_BOOTSTRAP_SERVERS"],
        Crash(_point, int(_times)) if _point else None,
    )
