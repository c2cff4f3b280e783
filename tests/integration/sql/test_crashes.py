"""Money moves exactly once, whatever ends in the middle: the service at each step, its process under load, PostgreSQL itself."""

import asyncio
import collections
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from tests.integration.sql.conftest import emptied
from tests.integration.sql.transfers import ACCOUNTS, START, build, open_accounts
from tests.support.patience import patient
from tests.support.postgres import Postgres
from tests.support.programs import spawn_async
from tests.support.seeds import seed
from tests.support.variants import with_variants

from busway import Admin, NewTopic, Producer
from busway.app.extending.extension import CRASH_POINTS
from busway.consumer.snapshot import read_to_end
from busway.sql import OUTBOX_ID

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("programs_end")]
HERE = Path(__file__).parent
SECONDS = patient(60)


class Ledger:
    """The transfers that were asked for, and whether the database and the topic agree with them."""

    def __init__(self, bootstrap: str, url: str) -> None:
        self.bootstrap = bootstrap
        self.url = url
        self.chance = random.Random(seed(1))
        self.transfers: list[dict[str, int]] = []

    async def open(self) -> None:
        """Accounts and topics."""
        engine = create_async_engine(self.url)
        await open_accounts(engine)
        await engine.dispose()
        async with Admin(self.bootstrap) as admin:
            await admin.create_topics([NewTopic("transfers", 2), NewTopic("booked", 2)])

    async def ask(self, count: int) -> None:
        """Ask for transfers; some are published twice, as a producer without idempotence might, which makes two of them."""
        async with Producer(self.bootstrap) as producer:
            for _ in range(count):
                giver, taker = self.chance.sample(range(ACCOUNTS), 2)
                transfer = {
                    "id": len(self.transfers),
                    "from": giver,
                    "to": taker,
                    "amount": self.chance.randrange(1, 50),
                }
                self.transfers.append(transfer)
                await producer.send("transfers", json.dumps(transfer).encode(), str(giver).encode())

    async def booked(self) -> list[int]:
        """Ids of the transfers that were published, copies by the relay counted once."""
        by_id = {}
        async for record in read_to_end(self.bootstrap, "booked"):
            by_id[dict(record.headers)[OUTBOX_ID]] = json.loads(record.value or b"")["id"]
        return sorted(by_id.values())

    async def balances(self) -> dict[int, int]:
        engine = create_async_engine(self.url)
        async with engine.connect() as connection:
            rows = (await connection.execute(text("SELECT id, balance FROM accounts"))).all()
        await engine.dispose()
        return dict(tuple(row) for row in rows)

    async def settle(self) -> None:
        """Wait until all is booked; then check that it was, each once, and that the order of each giver is kept."""
        async with asyncio.timeout(SECONDS):
            while len(await self.booked()) < len(self.transfers):
                await asyncio.sleep(0.02)
        assert await self.booked() == [transfer["id"] for transfer in self.transfers]
        wanted = dict.fromkeys(range(ACCOUNTS), START)
        for transfer in self.transfers:
            wanted[transfer["from"]] -= transfer["amount"]
            wanted[transfer["to"]] += transfer["amount"]
        assert await self.balances() == wanted
        firsts: dict[bytes | None, dict[int, None]] = collections.defaultdict(dict)
        async for record in read_to_end(self.bootstrap, "booked"):
            firsts[record.key].setdefault(json.loads(record.value or b"")["id"])
        for ids in firsts.values():
            assert list(ids) == sorted(ids)


class Process:
    """`busway run transfers:app`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, ledger: Ledger, crash: str = "") -> "Process":
        return cls(
            await spawn_async(
                sys.executable,
                *("-m", "busway.cli", "run", "transfers:app", "--log-level", "warning"),
                stderr=asyncio.subprocess.PIPE,
                cwd=HERE,
                env={
                    **os.environ,
                    "TRANSFERS_URL": ledger.url,
                    "BUSWAY_BOOTSTRAP_SERVERS": ledger.bootstrap,
                    "TRANSFERS_CRASH": crash,
                },
            )
        )

    async def ended(self) -> int:
        """Its exit code."""
        async with asyncio.timeout(SECONDS):
            _, err = await self.process.communicate()
        assert self.process.returncode is not None
        assert "Traceback" not in err.decode(), err.decode()
        return self.process.returncode

    async def end(self, number: signal.Signals) -> int:
        """End it."""
        self.process.send_signal(number)
        return await self.ended()


@pytest.mark.parametrize(
    "point",
    with_variants(
        [*CRASH_POINTS, "in-transaction", "published"], gate=["before-commit", "in-transaction", "published"]
    ),
)
async def test_a_crash_at_each_step(url: str, bootstrap: str, point: str) -> None:
    """SIGKILL at a step of the runtime, inside the transaction, or between publishing and deleting; then another process goes on."""
    ledger = Ledger(bootstrap, url)
    await ledger.open()
    await ledger.ask(40)
    crash = await Process.start(ledger, f"{point}:{1 if 'commit' in point or point == 'published' else 7}")
    assert await crash.ended() == -signal.SIGKILL
    async with build(url, bootstrap):
        await ledger.ask(5)
        await ledger.settle()


@pytest.mark.postgres
async def test_processes_that_are_killed_under_load(postgres: Postgres, bootstrap: str) -> None:
    """Two share the work, each is killed at a random time and replaced, while transfers keep coming."""
    await emptied(postgres)
    ledger = Ledger(bootstrap, postgres.url)
    await ledger.open()
    running = [await Process.start(ledger) for _ in range(2)]
    for turn in range(4):
        before = len(await ledger.booked())
        await ledger.ask(250)
        target = before + ledger.chance.randrange(20, 200)
        async with asyncio.timeout(SECONDS):
            while len(await ledger.booked()) < target:
                await asyncio.sleep(0.01)
        assert await running.pop(0).end(signal.SIGKILL) == -signal.SIGKILL
        running.append(await Process.start(ledger))
        print("turn", turn, "killed at", target)
    await ledger.settle()
    for process in running:
        assert await process.end(signal.SIGTERM) == 0


@pytest.mark.postgres
@pytest.mark.parametrize("resume", ["group", "database"])
async def test_postgresql_is_killed_under_load(bootstrap: str, resume: Any) -> None:
    """It comes back after a while, twice; no record is put aside, none counts twice, the service needs no restart."""
    with Postgres() as server:
        ledger = Ledger(bootstrap, server.url)
        await ledger.open()
        app = build(server.url, bootstrap, resume=resume)
        async with app:
            for _ in range(2):
                before = len(await ledger.booked())
                await ledger.ask(300)
                async with asyncio.timeout(SECONDS):
                    while len(await ledger.booked()) < before + 50:
                        await asyncio.sleep(0.005)
                server.kill()
                await ledger.ask(20)
                await asyncio.to_thread(server.start)
            await ledger.settle()
            assert app.worker is not None
            assert app.worker.dead_lettered == 0
