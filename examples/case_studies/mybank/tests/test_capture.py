"""The whole way on a real PostgreSQL: from the commit through the connector to the alert, and the bank's own transfers."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from decimal import Decimal

import httpx2
import psycopg
import pytest
from mybank import audit, bank, capture, domain, generate, service
from mybank.events import Transferred
from mybank.ledger import METADATA
from mybank.tests.captured import NOON, schema
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from tests.support.patience import patient
from tests.support.postgres import Postgres

from busway import RegistryClient
from busway.testing import TestBus
from busway.web import serving
from busway_connect.cli_entry import ConnectServer, WorkerConfig

pytestmark = [pytest.mark.slow, pytest.mark.postgres]
WAIT_S = patient(30.0)


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Returns when it is so."""
    async with asyncio.timeout(WAIT_S):
        while not await true():
            await asyncio.sleep(0.02)


@pytest.fixture
def database() -> Iterator[Postgres]:
    """A server of its own, to be killed, with the bank's tables."""
    with Postgres() as server:
        engine = create_engine(server.url)
        METADATA.create_all(engine)
        engine.dispose()
        yield server


@pytest.fixture
async def bus(database: Postgres) -> AsyncIterator[TestBus]:
    """The service on a fresh bus."""
    async with service.app.test() as running:
        yield running


def worker(bus: TestBus) -> WorkerConfig:
    """A worker that writes Avro."""
    converters = {
        name: text
        for part in ("key.converter", "value.converter")
        for name, text in (
            (part, "io.confluent.connect.avro.AvroConverter"),
            (f"{part}.schema.registry.url", str(bus.app.schema_registry)),
        )
    }
    return WorkerConfig.from_properties(
        {
            "bootstrap.servers": str(bus.app.bootstrap_servers),
            "rest.port": "0",
            "offset.flush.interval.ms": "50",
            "exactly.once.source.support": "enabled",
            **converters,
        }
    )


async def capturing(connect: ConnectServer, database: Postgres) -> None:
    """The connector runs on the database."""
    await capture.install(connect.url, capture.settings("127.0.0.1", database.port))
    await until(lambda: capture.running(connect.url))


async def test_from_the_commit_to_the_alert_over_a_killed_database(database: Postgres, bus: TestBus) -> None:
    """What was there before the connector, what is committed while it runs, and after the database was killed, is alerted as plain SQL says."""
    writers = [generate.Writer(database.dsn, number, seed=3, per_s=200.0) for number in range(2)]
    opened = [account for writer in writers for account in writer.accounts]
    await generate.open_accounts(database.dsn, opened)
    for account in opened:
        single, hourly = {"CARD": Decimal("60.00")}, Decimal("150.00")
        await service.thresholds.put(account.id, domain.thresholds(account.id, single, hourly, NOON))
        await audit.wish(database.dsn, account.id, single, hourly)
    await writers[0].run(60)
    async with ConnectServer(worker(bus)) as connect:
        await capturing(connect, database)

        async def everyone() -> bool:
            return len(service.accounts) == len(opened)

        await until(everyone)
        await writers[1].run(60)
        await asyncio.to_thread(database.kill)
        await asyncio.to_thread(database.start)
        await asyncio.gather(*(writer.run(60) for writer in writers))
        due = await audit.expected(database.dsn)
        assert len(due.alerts) > 5

        async def captured() -> bool:
            return len(await bus.records(service.transactions)) == due.transactions

        await until(captured)
        await bus.settle()
    counts = Counter(record.key for record in await bus.records(service.alerts.topic))
    assert counts == Counter(due.alerts)
    letters = await bus.dead_letters(service.transactions)
    assert (len(letters), {letter.error.partition(":")[0] for letter in letters}) == (due.nonsense, {"Impossible"})


async def test_the_schemas_of_the_other_tests_are_those_of_the_connector(database: Postgres, bus: TestBus) -> None:
    """What the connector registers for the bank's tables is what `captured` writes by."""
    await generate.open_accounts(database.dsn, generate.accounts(0, 1))
    await generate.Writer(database.dsn, 0, seed=1, per_s=100.0).run(1)
    async with ConnectServer(worker(bus)) as connect, RegistryClient(str(bus.app.schema_registry)) as registry:
        await capturing(connect, database)

        async def captured() -> bool:
            return len(await bus.records(service.transactions)) == 1 and len(service.accounts) > 0

        await until(captured)
        for table in ("accounts", "transactions"):
            for part in ("key", "value"):
                version = await registry.request("GET", f"/subjects/mybank.public.{table}-{part}/versions/latest")
                assert json.loads(version["schema"]) == schema(table, part), f"{table}-{part}"


@pytest.fixture
async def transfers(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[TestBus, httpx2.AsyncClient]]:
    """The bank on that database and a fresh bus, with accounts in two currencies."""
    engine = create_async_engine(database.url, pool_pre_ping=True)
    monkeypatch.setattr(bank, "engine", engine)
    for extension in (bank.outbox, bank.inbox):
        monkeypatch.setattr(extension, "_engine", engine)
    with psycopg.connect(database.dsn) as connection:
        connection.execute(
            "INSERT INTO accounts VALUES ('a', 'one', 'EUR'), ('b', 'two', 'EUR'), ('c', 'three', 'CHF')"
        )
    async with (
        bank.app.test() as bus,
        serving(bank.web) as url,
        httpx2.AsyncClient(base_url=url, timeout=patient(20)) as client,
    ):
        yield bus, client


async def test_a_transfer_is_booked_on_both_sides_and_told(
    database: Postgres, transfers: tuple[TestBus, httpx2.AsyncClient]
) -> None:
    """Both transactions and the event, exactly to the cent; the outbox publishes it."""
    bus, client = transfers
    answer = await client.post("/transfers", json={"from_account": "a", "to_account": "b", "amount": "0.10"})
    assert answer.status_code == 201, answer.text
    ids = answer.json()["transaction_ids"]
    with psycopg.connect(database.dsn) as connection:
        rows = connection.execute("SELECT id, account_id, kind, amount FROM transactions ORDER BY id").fetchall()
    assert rows == [(ids[0], "a", "TRANSFER", Decimal("0.10")), (ids[1], "b", "DEPOSIT", Decimal("0.10"))]

    async def published() -> bool:
        return len(await bus.records(bank.transfers)) == 1

    await until(published)
    (record,) = await bus.records(bank.transfers)
    assert isinstance(record.value, Transferred)
    assert (record.key, record.value.amount, record.value.transaction_ids) == ("a", Decimal("0.10"), ids)


async def test_a_transfer_that_cannot_be_leaves_nothing(
    database: Postgres, transfers: tuple[TestBus, httpx2.AsyncClient]
) -> None:
    """4xx naming the field and what would be right; neither a transaction nor an event."""
    _, client = transfers
    for changes, named in (
        ({"amount": "0"}, "amount is 0"),
        ({"amount": "-5.00"}, "amount is -5.00"),
        ({"amount": "1.001"}, "amount is 1.001; cents"),
        ({"amount": "x"}, "amount: Invalid decimal"),
        ({"from_account": "nobody"}, "from_account: there is no account 'nobody'"),
        ({"to_account": "nobody"}, "to_account: there is no account 'nobody'"),
        ({"to_account": "a"}, "to_account: 'a' is from_account, too"),
        ({"to_account": "c"}, "to_account: 'c' is in CHF, from_account in EUR"),
    ):
        answer = await client.post(
            "/transfers", json={"from_account": "a", "to_account": "b", "amount": "5.00", **changes}
        )
        assert (answer.status_code, named in answer.json()["error"]) == (422, True), answer.text
    with psycopg.connect(database.dsn) as connection:
        assert connection.execute("SELECT count(*) FROM transactions").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM busway_outbox").fetchone() == (0,)
    await asyncio.to_thread(database.kill)
    away = await client.post("/transfers", json={"from_account": "a", "to_account": "b", "amount": "5.00"})
    assert (away.status_code, "the database cannot be reached" in away.json()["error"]) == (503, True)
    await asyncio.to_thread(database.start)
    assert (
        await client.post("/transfers", json={"from_account": "a", "to_account": "b", "amount": "5.00"})
    ).status_code == 201
