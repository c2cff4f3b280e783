"""`busway demo mybank`: PostgreSQL, the bus, the registry, the connector, the service and the bank as processes of their own; customers
who pay, owners who get alerts.

Here: starting, paying, killing, counting.
Not here: the load (`generate`), what must come of it (`audit`).

With `--ci` it ends by itself. Service, bank, registry, bus, database and connector are killed without warning, one after the other, while
transactions are committed; then plain SQL says which alerts there must be, and each must be in the topic once.
"""

import argparse
import asyncio
import contextlib
import datetime as dt
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Final

import httpx2
import psycopg
from kit.command import Interrupts, run_demo, stopped_early
from kit.faults import KillsInTurn
from kit.parts import BUSWAY, DemoFailed, Part, Parts, free_port
from kit.postgres import Postgres
from kit.summary import Summary
from rich.console import Console

from busway import App, read_to_end
from mybank import audit, capture, generate
from mybank.audit import Expected
from mybank.events import Transferred
from mybank.generate import Account, Writer
from mybank.received import Received, receiving
from mybank.topics import ALERTS

SEED: Final = 7
PORT: Final = 8000
WRITERS: Final = 4
PER_S: Final = 50.0
"""Transactions of one writer in a second."""
SECONDS: Final = {True: 9.0, False: 3600.0}
"""How long customers pay, in CI and otherwise; and for as long as parts are killed."""
SETTLE_S: Final = 30.0
LOOK_S: Final = 0.05
CHANGED: Final = Account(id="EU99-0001", owner="Mia Quick", currency="EUR")
TRANSFERS: Final = (
    Account(id="EU99-0002", owner="Noa Payer", currency="EUR"),
    Account(id="EU99-0003", owner="Ole Payee", currency="EUR"),
)
SURE: Final = Decimal("5000.00")
"""Alerted by every threshold that is set here."""


@dataclass(slots=True)
class Demo:
    """The parts and their addresses."""

    parts: Parts
    client: httpx2.AsyncClient
    postgres: Postgres
    connect: Part
    service: Part
    url: str
    bank_url: str
    connect_url: str
    kills: KillsInTurn
    answered: int | None = None
    """Transfers over HTTP; None while they go on."""
    received: Received = field(default_factory=Received)
    undisturbed_until: float = float("inf")

    @classmethod
    async def start(cls, parts: Parts, client: httpx2.AsyncClient, *, ci: bool) -> "Demo":
        """All parts: the service first, which makes the topics, then the bank, which makes the tables, while the connector comes up."""
        postgres, _ = await asyncio.gather(Postgres.start(parts), parts.start_bus())
        worker = (
            "connect", "--port", str(free_port()), "--json", "-o", "session.timeout.ms=6000",
            "-o", "exactly.once.source.support=enabled",
        )  # fmt: skip
        connect = await parts.start("connect", *BUSWAY, *worker)
        page = {"BUSWAY_HTTP_PORT": str(free_port(0 if ci else PORT)), "MYBANK_INSTANCE": "one"}
        service = await parts.start_app("service", "mybank.service:app", **page)
        bank = await parts.start_app(
            "bank",
            "mybank.bank:app",
            BUSWAY_HTTP_PORT=str(free_port()),
            MYBANK_DATABASE=postgres.url,
            MYBANK_BANK_INSTANCE="one",
        )
        url, bank_url, said = await asyncio.gather(service.line(), bank.line(), connect.line())
        return cls(
            parts=parts,
            client=client,
            postgres=postgres,
            connect=connect,
            service=service,
            url=url.removeprefix("mybank "),
            bank_url=bank_url.removeprefix("mybank-bank "),
            connect_url=json.loads(said)["connect"],
            kills=KillsInTurn([service, bank, parts.registry, parts.bus, postgres, connect] if ci else []),
        )

    async def capture(self, accounts: list[Account]) -> None:
        """Open the accounts, capture the tables, let owners set their thresholds."""
        dsn = self.postgres.dsn
        await generate.open_accounts(dsn, accounts)
        await capture.install(
            self.connect_url, capture.settings("127.0.0.1", self.postgres.port, exactly_once_support="required")
        )
        await _until(lambda: capture.running(self.connect_url), "the connector runs")

        async def captured() -> bool:
            return len((await self.client.get(f"{self.url}/accounts")).json()) == len(accounts)

        await _until(captured, "the accounts are captured")
        for account in accounts:
            if account.single or account.hourly is not None:
                single = {kind: Decimal(amount) for kind, amount in account.single.items()}
                await self.wish(account.id, single, None if account.hourly is None else Decimal(account.hourly))

    async def wish(self, account_id: str, single: Mapping[str, Decimal], hourly: Decimal | None = None) -> None:
        """Set thresholds, and note for the audit from which transaction on they hold."""
        body = {
            "single": {kind: str(amount) for kind, amount in single.items()},
            "hourly": None if hourly is None else str(hourly),
        }
        answer = await self.client.put(f"{self.url}/thresholds/{account_id}", json=body)
        if answer.is_error:
            raise DemoFailed(f"PUT /thresholds/{account_id}: {answer.text}")
        await audit.wish(self.postgres.dsn, account_id, single, hourly)

    async def change_thresholds(self) -> None:
        """An owner who changes their mind: what is paid after each answer is judged by the new threshold, and by no other."""
        for threshold in ("400.00", "600.00", "500.00", "500.01"):
            await self.pay(CHANGED.id, Decimal("500.00"))
            await self.alerted(await self.pay(CHANGED.id, SURE))  # so that what came before was judged by the old one
            await self.wish(CHANGED.id, {"CARD": Decimal(threshold)})
        await self.pay(CHANGED.id, Decimal("500.00"))

    async def pay(self, account_id: str, amount: Decimal) -> int:
        """Commit one transaction; its id."""
        async with await psycopg.AsyncConnection.connect(self.postgres.dsn) as connection:
            given = (account_id, "CARD", amount, "EUR", dt.datetime.now(dt.UTC))
            row = await (await connection.execute(f"{generate.INSERT} RETURNING id", given)).fetchone()
        assert row is not None
        return int(row[0])

    async def alerted(self, transaction_id: int) -> None:
        """Returns when the alert for that transaction has come."""

        async def has_come() -> bool:
            return f"{transaction_id}:SINGLE" in self.received.ids

        await _until(has_come, f"transaction {transaction_id} has its alert")

    async def transfer(self, count: int, killed: asyncio.Event) -> int:
        """Transfers over HTTP, until so many were answered with 201 and every part was killed; a bank that cannot now is asked again."""
        done = 0
        while done < count or not killed.is_set():
            body = {"from_account": TRANSFERS[0].id, "to_account": TRANSFERS[1].id, "amount": f"{900 + 20 * done}.00"}
            with contextlib.suppress(httpx2.HTTPError):
                done += (await self.client.post(f"{self.bank_url}/transfers", json=body)).status_code == 201
            await asyncio.sleep(0.2)
        return done

    async def transferred(self) -> set[int]:
        """The payers' bookings of the transfers that the outbox published; one that it published twice counts once."""
        app = App("mybank-audit", self.parts.bootstrap_servers, self.parts.schema_registry)
        topic = app.topic("mybank.transfers", value=Transferred, read_only=True)
        async with app:
            return {record.value.transaction_ids[0] async for record in app.read(topic) if record.value is not None}

    async def dead_letters(self) -> int:
        """Transactions among the dead letters."""
        letters = read_to_end(
            self.parts.bootstrap_servers, "mybank.public.transactions.mybank.dlt", isolation_level="read_committed"
        )
        return len([record async for record in letters])

    async def kill_all(self, seconds: float) -> None:
        """Each part in its moment."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with self.kills:
            for turn in self.kills.turns:
                await asyncio.sleep(max(begun + turn * seconds - loop.time(), 0))
                self.undisturbed_until = min(self.undisturbed_until, loop.time())
                await self.kills.passed(turn)


async def _until(true: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(SETTLE_S):
            while not await true():  # noqa: ASYNC110 - other processes set no event of ours
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise DemoFailed(f"after {SETTLE_S:.0f} s it is not so that {what}") from None


async def run(interrupts: Interrupts, *, ci: bool) -> int:
    """The whole demo; 0 when nothing was lost or doubled."""
    console = Console()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mybank-") as folder:
        parts = Parts(Path(folder), hurry=interrupts.hurry)
        async with parts, httpx2.AsyncClient(timeout=20) as client:
            started: list[Demo] = []

            async def start() -> None:
                started.append(await Demo.start(parts, client, ci=ci))

            if not await interrupts.until_stop(start()):
                return stopped_early(begun).show(console)
            (demo,) = started
            console.print(
                f"bus       {parts.bootstrap_servers}\nregistry  {parts.schema_registry}\ndatabase  {demo.postgres.dsn}\n"
                f"connect   {demo.connect_url}\nbank      {demo.bank_url}\npage      [bold]{demo.url}[/bold]"
            )
            writers = [Writer(demo.postgres.dsn, number, seed=SEED, per_s=PER_S) for number in range(WRITERS)]
            accounts = [CHANGED, *TRANSFERS, *(account for writer in writers for account in writer.accounts)]
            if not await interrupts.until_stop(demo.capture(accounts)):
                return stopped_early(begun).show(console)
            async with receiving(parts.bootstrap_servers, parts.schema_registry) as demo.received:
                if not ci:
                    console.print("customers pay for an hour; Ctrl-C ends")
                summary = Summary()

                async def load() -> None:
                    demo.answered = await _load(demo, writers, ci=ci)

                async def count() -> None:
                    nonlocal summary
                    summary = await _count(demo, stopped=interrupts.stop.is_set())

                await interrupts.until_stop(load())
                if not await interrupts.wait(count(), 3 * SETTLE_S):
                    summary.figure("not counted", "stopped before")
            summary.figure("took", f"{time.monotonic() - begun:.1f} s")
            return summary.show(console)


async def _load(demo: Demo, writers: list[Writer], *, ci: bool) -> int:
    seconds, killed = SECONDS[ci], asyncio.Event()

    async def write(writer: Writer) -> None:
        await writer.run(int(PER_S * seconds))
        while not killed.is_set():
            await writer.run(int(PER_S))

    async with asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(write(writer))
        transfers = group.create_task(demo.transfer(int(seconds * 2), killed))
        await demo.change_thresholds()
        await demo.kill_all(seconds)
        killed.set()
    return transfers.result()


async def _count(demo: Demo, *, stopped: bool) -> Summary:
    """Compare what came with what the database says must come."""
    expected = await audit.expected(demo.postgres.dsn)

    async def settled() -> bool:
        nonlocal expected
        expected = await audit.expected(demo.postgres.dsn)
        return (
            expected.alerts <= demo.received.ids
            and expected.alerts <= expected.notices.keys()
            and await demo.transferred() >= await audit.booked(demo.postgres.dsn, TRANSFERS[0].id)
        )

    with contextlib.suppress(DemoFailed):
        await _until(settled, "every alert has come")
    # Every record of the topics, as it is in the log: compaction has not come to them yet.
    alerts = Counter(
        [
            (record.key or b"").decode()
            async for record in read_to_end(demo.parts.bootstrap_servers, ALERTS, isolation_level="read_committed")
        ]
    )
    summary = _summary(demo, expected, alerts)
    summary.figure("dead letters", await demo.dead_letters(), must_be=expected.nonsense)
    if demo.answered is not None:
        summary.figure("transfers answered", demo.answered)
    booked, transferred = await audit.booked(demo.postgres.dsn, TRANSFERS[0].id), await demo.transferred()
    summary.figure("transfers committed", len(booked))
    summary.figure("transfers that the outbox published", len(transferred & booked), must_be=len(booked))
    summary.figure("transfers published and not committed", len(transferred - booked), must_be=0)
    if not stopped:
        demo.kills.tell(summary)
    return summary


def _summary(demo: Demo, expected: Expected, alerts: Counter[str]) -> Summary:
    received, quiet = demo.received, demo.undisturbed_until
    summary = Summary()
    summary.figure("transactions committed", expected.transactions)
    summary.figure("alerts due, by SQL over the database", len(expected.alerts))
    summary.figure("lost", len(expected.alerts - alerts.keys()), must_be=0)
    summary.figure("doubled", sum(count - 1 for count in alerts.values()), must_be=0)
    summary.figure("not due", len(alerts.keys() - expected.alerts), must_be=0)
    summary.figure("notices in the bank's database", sum(expected.notices.values()), must_be=len(expected.alerts))
    for part, name in ((0.5, "p50"), (0.99, "p99")):
        summary.figure(f"commit to alert, {name}", f"{received.percentile_ms(part, until=quiet):.0f} ms")
    if demo.kills.killed:
        summary.figure("with the outages, longest", f"{received.percentile_ms(1) / 1000:.1f} s")
    summary.figure("impossible rows", expected.nonsense)
    return summary


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="busway demo mybank")
    parser.add_argument("--ci", action="store_true", help="print a summary and exit")
    ci = parser.parse_args().ci or not sys.stdout.isatty()
    return run_demo(lambda interrupts: run(interrupts, ci=ci), capture.Refused)


if __name__ == "__main__":
    sys.exit(main())
