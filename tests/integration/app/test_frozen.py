"""Processes of a service that are frozen, or killed under load: what they do is there once."""

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path

import pytest
from tests.support.apache_kafka import ApacheKafka
from tests.support.patience import patient
from tests.support.programs import spawn_async
from tests.support.seeds import seed

from busway import Admin, NewTopic, Producer, read_to_end
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("programs_end")]
HERE = Path(__file__).parent
SECONDS = patient(30)
SHOPS = ["shop a", "shop b", "shop c"]


PROPERTIES = {
    "group.min.session.timeout.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}


@pytest.fixture(params=["busway", pytest.param("apache", marks=pytest.mark.java)])
async def bootstrap(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A broker in this process, and Apache Kafka."""
    if request.param == "busway":
        async with LocalCluster(properties=PROPERTIES) as cluster:
            yield cluster.bootstrap_servers
        return
    with ApacheKafka(PROPERTIES, heap="512m") as kafka:
        yield kafka.bootstrap_servers


class Service:
    """`busway run adding:app`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self.reading = asyncio.ensure_future(self._read())
        self.came = asyncio.Event()

    @classmethod
    async def start(cls, bootstrap: str, **environment: str) -> "Service":
        process = await spawn_async(
            sys.executable,
            *("-m", "busway.cli", "run", "adding:app", "-b", bootstrap, "--log-level", "warning"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=HERE,
            env={**os.environ, "BUSWAY_BOOTSTRAP_SERVERS": bootstrap, **environment},
        )
        return cls(process)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while raw := await self.process.stdout.readline():
            self.lines.append(raw.decode().rstrip())
            self.came.set()
        self.came.set()

    async def until(self, line: str) -> None:
        """Return when it has printed a line."""
        async with asyncio.timeout(SECONDS):
            while line not in self.lines:
                assert not self.reading.done(), "\n".join(self.lines)
                self.came.clear()
                await self.came.wait()

    def go_on(self) -> None:
        """With the sale that waits for it."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")

    async def end(self, number: signal.Signals) -> int:
        """Its exit code."""
        self.process.send_signal(number)
        async with asyncio.timeout(SECONDS):
            code = await self.process.wait()
            await self.reading
        return code


def of_partition(shop: str) -> int:
    """Where a shop's sales go."""
    return SHOPS.index(shop) % 2


async def sell(producer: Producer, numbers: Iterable[int], shop: str, *, slow: bool = False) -> None:
    """Sales of a shop, acknowledged."""
    for number in numbers:
        sale = json.dumps({"number": number, "shop": shop, "slow": slow}).encode()
        await producer.send_and_wait("sales", sale, shop.encode(), partition=of_partition(shop))


async def receipt_counts(bootstrap: str) -> Counter[int]:
    """How often there is a receipt of each sale."""
    counts: Counter[int] = Counter()
    async for record in read_to_end(bootstrap, "receipts", isolation_level="read_committed"):
        counts[json.loads(record.value or b"")["number"]] += 1
    return counts


async def rows(bootstrap: str) -> Mapping[str, list[dict[str, int]]]:
    """What rows of each shop were, one after the other."""
    shop_rows: dict[str, list[dict[str, int]]] = {}
    async for record in read_to_end(bootstrap, "totals", isolation_level="read_committed"):
        shop_rows.setdefault((record.key or b"").decode(), []).append(json.loads(record.value or b""))
    return shop_rows


async def until_told(bootstrap: str, wanted: set[int]) -> Counter[int]:
    """The receipts, when there is one of each of these sales."""
    async with asyncio.timeout(SECONDS):
        while not wanted <= (counts := await receipt_counts(bootstrap)).keys():
            await asyncio.sleep(0.05)
    return counts


async def until_shared(bootstrap: str, count: int) -> None:
    """Return when so many members have the partitions."""
    async with Admin(bootstrap) as admin, asyncio.timeout(SECONDS):
        while True:
            members = (await admin.describe_group("adding")).members
            if len(members) == count and all(member.partitions for member in members):
                return
            await asyncio.sleep(0.05)


async def make_topics(bootstrap: str) -> None:
    """Before a service writes to them."""
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic("sales", 2), NewTopic("receipts", 2)])


def check_rows(rows_read: Mapping[str, list[dict[str, int]]], sold: Mapping[str, Iterable[int]]) -> None:
    """Each row comes out of the one before it by one sale, and the last one holds all of them: no late row was written."""
    for shop, numbers in sold.items():
        counts = [row["count"] for row in rows_read[shop]]
        assert counts == sorted(set(counts)), f"{shop}: {counts}"
        assert rows_read[shop][-1] == {"count": len([*numbers]), "sum": sum(numbers)}, shop


async def test_a_process_that_was_frozen_writes_nothing_afterwards(bootstrap: str) -> None:
    """SIGSTOP in the middle of a handler, for longer than its session: another process handles the record, and goes on; then SIGCONT.

    Handled at least once, the first process then sends its receipt, which is the second one of that sale, and its row, which undoes what
    the other process has counted meanwhile.
    """
    guarantee = os.environ.get("ADDING_GUARANTEE", "exactly_once")
    await make_topics(bootstrap)
    frozen = await Service.start(bootstrap, ADDING_WAITS="1", ADDING_GUARANTEE=guarantee)
    async with Producer(bootstrap) as producer:
        await sell(producer, range(10), "shop a")
        await until_told(bootstrap, set(range(10)))
        await sell(producer, [10], "shop a", slow=True)
        await frozen.until("begins 10")
        frozen.process.send_signal(signal.SIGSTOP)
        other = await Service.start(bootstrap, ADDING_GUARANTEE=guarantee)
        await other.until("begins 10")
        await sell(producer, range(11, 20), "shop a")
        await until_told(bootstrap, set(range(20)))
        frozen.go_on()
        frozen.process.send_signal(signal.SIGCONT)
        await until_shared(bootstrap, 2)
        await sell(producer, range(20, 30), "shop a")
        await sell(producer, range(30, 40), "shop b")
        counts = await until_told(bootstrap, set(range(40)))
    assert {number: count for number, count in counts.items() if count > 1} == {}
    check_rows(await rows(bootstrap), {"shop a": range(30), "shop b": range(30, 40)})
    for service in (frozen, other):
        assert await service.end(signal.SIGTERM) == 0, service.lines
        assert not [line for line in service.lines if "Traceback" in line], service.lines


async def test_kills_under_load_lose_and_double_nothing(bootstrap: str) -> None:
    """SIGKILL at random moments while sales come in: each has one receipt, and counted once, by a handler that does not look."""
    chance = random.Random(seed(1))
    await make_topics(bootstrap)
    sold: dict[str, list[int]] = {shop: [] for shop in SHOPS}
    selling = True

    async def load(producer: Producer) -> None:
        number = 0
        while selling:
            for shop in SHOPS:
                number += 1
                sold[shop].append(number)
                await sell(producer, [number], shop)
            await asyncio.sleep(0)

    async with Producer(bootstrap) as producer:
        loading = asyncio.ensure_future(load(producer))
        for _ in range(3):
            service = await Service.start(bootstrap)
            begun = sum(map(len, sold.values()))
            await until_told(bootstrap, {begun})
            await asyncio.sleep(chance.uniform(0, 0.3))  # the moment of the kill is what is tried
            await service.end(signal.SIGKILL)
        service = await Service.start(bootstrap)
        selling = False
        await loading
    wanted = {number for numbers in sold.values() for number in numbers}
    counts = await until_told(bootstrap, wanted)
    assert {number: count for number, count in counts.items() if count > 1} == {}
    assert counts.keys() == wanted
    check_rows(await rows(bootstrap), sold)
    assert await service.end(signal.SIGTERM) == 0, service.lines
