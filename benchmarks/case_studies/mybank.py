"""MyBank on both brokers: from the commit in PostgreSQL to the alert, and the transactions a second that the whole way holds.

Here: the load and the figures.
Not here: brokers, turns, the table (`frame`).

PostgreSQL, connector and service are processes of their own. First many transactions are committed at once: the rate until the last one
of each account is alerted, and with it all before. Then transactions are committed at an even pace by writers that wait for each commit, and
every one is alerted: the time from the database's commit until the alert has been read from `mybank.alerts`.

    python -m benchmarks.case_studies.mybank
"""

import asyncio
import json
import sys
from typing import Final

import httpx2
import psycopg
from tools.jars import ROOT

from benchmarks.case_studies.frame import Figures, Site, main
from benchmarks.report import Metric

sys.path.insert(0, str(ROOT / "examples" / "case_studies"))

from kit.parts import BUSWAY, Parts
from kit.postgres import Postgres
from mybank import capture, generate
from mybank.events import Kind
from mybank.ledger import METADATA
from mybank.received import Received, receiving
from sqlalchemy.ext.asyncio import create_async_engine

HELD: Final = Metric(name="transactions held", unit="/s", higher_is_better=True, target=1.0)
P50: Final = Metric(name="commit to alert, p50", unit="ms", higher_is_better=False, target=1.0)
P99: Final = Metric(name="commit to alert, p99", unit="ms", higher_is_better=False, target=250.0, absolute=True)
WRITERS: Final = 4
BURST, QUICK_BURST = 8000, 800
SECONDS, QUICK_SECONDS = 12.0, 3.0
WARM_UP_S: Final = 2.0
PER_S: Final = 25.0
WAIT_S: Final = 60.0
LOOK_S: Final = 0.01
INSERT_MANY: Final = """
INSERT INTO transactions (account_id, kind, amount, currency, booked_at)
SELECT id, 'CARD', 0.50, currency, now() - INTERVAL '1 day' FROM accounts, generate_series(1, %s) ORDER BY random()
"""
INSERT_LAST: Final = """
INSERT INTO transactions (account_id, kind, amount, currency, booked_at)
SELECT id, 'CARD', 5000, currency, now() FROM accounts RETURNING id
"""


async def measure(site: Site) -> Figures:
    """One turn."""
    writers = [generate.Writer("", number, seed=1, per_s=PER_S) for number in range(WRITERS)]
    opened = [account for writer in writers for account in writer.accounts]
    async with Parts(site.folder, site.environment) as parts, httpx2.AsyncClient(timeout=20) as client:
        postgres = await Postgres.start(parts)
        await _tables(postgres)
        await generate.open_accounts(postgres.dsn, opened)
        service = await parts.start_app("service", "mybank.service:app", BUSWAY_HTTP_PORT="0")
        url = (await service.line()).removeprefix("mybank ")
        connect = await parts.start("connect", *BUSWAY, "connect", "--port", "0", "--json")
        connect_url = json.loads(await connect.line())["connect"]
        await capture.install(connect_url, capture.settings("127.0.0.1", postgres.port))
        await _thresholds(client, url, [account.id for account in opened])
        async with receiving(site.bootstrap_servers, site.schema_registry) as received:
            held = await _burst(postgres, received, QUICK_BURST if site.quick else BURST, len(opened))
            since = asyncio.get_running_loop().time() + WARM_UP_S
            seconds = WARM_UP_S + (QUICK_SECONDS if site.quick else SECONDS)
            before = len(received.ids)
            paced = [generate.Writer(postgres.dsn, number, seed=1, per_s=PER_S) for number in range(WRITERS)]
            await asyncio.gather(*(writer.run(int(PER_S * seconds)) for writer in paced))
            await _told(received, before + int(0.95 * PER_S * seconds * WRITERS))
    return {
        HELD: held,
        P50: received.percentile_ms(0.5, since=since),
        P99: received.percentile_ms(0.99, since=since),
    }


async def _tables(postgres: Postgres) -> None:
    engine = create_async_engine(postgres.url)
    async with engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
    await engine.dispose()


async def _thresholds(client: httpx2.AsyncClient, url: str, accounts: list[str]) -> None:
    """From one unit of money on everything is alerted; the accounts are there once they were captured."""
    body = {"single": {kind.value: "1.00" for kind in Kind}}
    for account in accounts:
        async with asyncio.timeout(WAIT_S):
            while (await client.put(f"{url}/thresholds/{account}", json=body)).status_code == 404:
                await asyncio.sleep(LOOK_S)


async def _burst(postgres: Postgres, received: Received, count: int, accounts: int) -> float:
    """Transactions per second from the commit until the last one of each account is alerted."""
    async with await psycopg.AsyncConnection.connect(postgres.dsn) as connection:
        await connection.execute(INSERT_MANY, (count // accounts,))
        last = await (await connection.execute(INSERT_LAST)).fetchall()
    begun = asyncio.get_running_loop().time()
    due = {f"{row[0]}:SINGLE" for row in last}
    async with asyncio.timeout(WAIT_S):
        while not due <= received.ids:
            await asyncio.sleep(LOOK_S)
    return (count // accounts * accounts + accounts) / (asyncio.get_running_loop().time() - begun)


async def _told(received: Received, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while len(received.ids) < count:
            await asyncio.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit(main("mybank", measure))
