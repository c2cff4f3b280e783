"""The examples of docs/TRANSACTIONS.md price every ride once, and count every sale once, as the page says."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import patient

from busway import Admin, App, Consumer, NewTopic, Producer
from busway_bus.testing.local_cluster import LocalCluster

PAGE = (Path(__file__).parents[2] / "docs" / "TRANSACTIONS.md").read_text()


def run(number: int) -> dict[str, Any]:
    """What the page's code of that number defines."""
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[number], names)
    return names


async def test_the_app_of_the_page_counts_once() -> None:
    """Killed before it commits, and begun again."""
    names = run(1)
    app: App = names["app"]
    async with app.test() as bus:
        crash = bus.crash(at="before-commit")
        for amount in range(1, 11):
            await bus.send(names["sales"], amount, key="shop")
        await crash
        await bus.settle()
        assert dict(names["totals"]) == {"shop": 55}
        assert [record.value for record in await bus.records(names["receipts"])] == list(range(1, 11))


PARTITIONS, RECORDS = 4, 40
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"session_timeout_ms": 1_000, "heartbeat_interval_ms": 100},
    "consumer": {"group_protocol": "consumer"},
}
SHORT_SESSIONS = {
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "1000",
}


class Instance:
    """One run of the page's code, whose work can be held up.

    Attributes:
        consumer: that it reads with.
        working: set while it works on a record, and may not go on.
        go_on: clear it to hold the work up.
    """

    def __init__(self, address: str, name: str, *, held: bool = False, **options: Any) -> None:
        self.consumer: Consumer | None = None
        self.producer: Producer | None = None
        self.working, self.go_on = asyncio.Event(), asyncio.Event()
        if not held:
            self.go_on.set()
        names = run(0)
        priced = names["priced"]

        async def slowly(ride: bytes) -> bytes:
            if not self.go_on.is_set():
                self.working.set()
                await self.go_on.wait()
            price: bytes = await priced(ride)
            return price

        def consumer(*topics: str, **given: Any) -> Consumer:
            self.consumer = Consumer(*topics, **given, **options)
            return self.consumer

        def producer(*given: Any, **more: Any) -> Producer:
            self.producer = Producer(*given, **more)
            return self.producer

        names.update(priced=slowly, Consumer=consumer, Producer=producer)
        self.task = asyncio.ensure_future(names["price_rides"](address, name))

    @property
    def has(self) -> list[int]:
        """The partitions that it is assigned."""
        return [] if self.consumer is None else [partition.partition for partition in self.consumer.assignment()]

    async def end(self) -> None:
        """End it as a program that is stopped."""
        self.task.cancel()
        await asyncio.wait([self.task])

    async def kill(self) -> None:
        """End it as a process that is killed: it says nothing to anybody."""
        assert self.consumer is not None
        assert self.producer is not None
        self.consumer.cut()
        self.producer.cut()
        await asyncio.gather(self.consumer.abort(), self.producer.abort())
        self.task.cancel()
        await asyncio.wait([self.task])


async def shared(*instances: Instance) -> None:
    """Return when each has some partitions, and none is left."""
    while (
        not all(instance.has for instance in instances)
        or sum(len(instance.has) for instance in instances) != PARTITIONS
    ):
        assert not any(instance.task.done() for instance in instances), instances
        await asyncio.sleep(0.01)


class Rides:
    """Rides in all partitions, and what is committed of their prices."""

    def __init__(self, address: str, judge: Consumer) -> None:
        self.address = address
        self._judge = judge
        self._count = 0
        self._prices: Counter[int] = Counter()

    async def send(self, count: int) -> None:
        """Write rides into all partitions in turn."""
        async with Producer(self.address) as producer:
            for number in range(self._count, self._count + count):
                await producer.send("rides", b"%d" % number, partition=number % PARTITIONS)
        self._count += count

    async def priced(self, partitions: Iterable[int] = range(PARTITIONS)) -> None:
        """Return when every ride of these partitions has a price."""
        chosen = set(partitions)
        wanted = {number for number in range(self._count) if number % PARTITIONS in chosen}
        while wanted - self._prices.keys():
            for records in (await self._judge.getmany(timeout_ms=1_000)).values():
                self._prices.update(int((record.value or b"").partition(b":")[0]) for record in records)

    async def are_priced_once(self) -> None:
        """Price one more in each partition; by then what was priced twice would be there."""
        await self.send(PARTITIONS)
        await self.priced()
        assert self._prices == Counter(range(self._count))


@asynccontextmanager
async def rides() -> AsyncIterator[Rides]:
    """Topics with some rides."""
    async with asyncio.timeout(patient(90)), LocalCluster(properties=SHORT_SESSIONS) as cluster:
        address = cluster.bootstrap_servers
        async with Admin(address) as admin:
            await admin.create_topics([NewTopic("rides", PARTITIONS), NewTopic("prices", 1)])
        judging = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        async with Consumer("prices", bootstrap_servers=address, **judging) as judge:
            stage = Rides(address, judge)
            await stage.send(RECORDS)
            yield stage


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_members_that_join_take_nothing_twice(protocol: str) -> None:
    """Two come while the first works; what it worked on is priced by who has it now."""
    async with rides() as stage:
        first = Instance(stage.address, "first", held=True, **PROTOCOLS[protocol])
        await first.working.wait()
        others = [Instance(stage.address, name, **PROTOCOLS[protocol]) for name in ("second", "third")]
        await shared(first, *others)
        await stage.priced(number for other in others for number in other.has)
        first.go_on.set()
        await stage.are_priced_once()
        for instance in (first, *others):
            await instance.end()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_work_for_longer_than_max_poll_interval_ms_is_not_committed(protocol: str) -> None:
    """The other member has priced all of it by then."""
    async with rides() as stage:
        first = Instance(stage.address, "first", held=True, max_poll_interval_ms=1_000, **PROTOCOLS[protocol])
        await first.working.wait()
        second = Instance(stage.address, "second", **PROTOCOLS[protocol])
        await stage.priced()
        assert first.has == []
        first.go_on.set()
        await stage.are_priced_once()
        await shared(first, second)
        await first.end()
        await second.end()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_partition_that_came_back_goes_on_where_the_other_member_was(protocol: str) -> None:
    """It joins, prices what it is given and leaves again, all while the first works."""
    async with rides() as stage:
        first = Instance(stage.address, "first", held=True, **PROTOCOLS[protocol])
        await first.working.wait()
        second = Instance(stage.address, "second", **PROTOCOLS[protocol])
        await shared(first, second)
        await stage.priced(second.has)
        await second.end()
        await shared(first)
        first.go_on.set()
        await stage.are_priced_once()
        await first.end()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_member_that_is_killed_leaves_nothing_behind(protocol: str) -> None:
    """With records in its open transaction, which the next one of its name aborts."""
    async with rides() as stage:
        first = Instance(stage.address, "first", **PROTOCOLS[protocol])
        await stage.priced()
        second = Instance(stage.address, "second", held=True, **PROTOCOLS[protocol])
        await shared(first, second)
        await stage.send(RECORDS)
        await second.working.wait()
        assert second.producer is not None
        await second.producer.send_and_wait("prices", b"0: never", b"key")
        await second.kill()
        second = Instance(stage.address, "second", **PROTOCOLS[protocol])
        await stage.are_priced_once()
        await first.end()
        await second.end()


@asynccontextmanager
async def topics_of_the_page(bootstrap_servers: str) -> AsyncIterator[None]:
    """Create the topics of the page: readers create none."""
    async with Admin(bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("rides", 1), NewTopic("prices", 1)])
    yield


@pytest.mark.slow
async def test_the_example_of_the_page_runs() -> None:
    """Ended in the middle and begun again, it goes on where it was."""
    names = run(0)
    price_rides: Callable[[str, str], Awaitable[None]] = names["price_rides"]
    async with (
        asyncio.timeout(patient(60)),
        LocalCluster() as cluster,
        topics_of_the_page(cluster.bootstrap_servers),
        Producer(cluster.bootstrap_servers) as producer,
        Consumer(
            "prices",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as judge,
    ):
        for number in range(3):
            pricing = asyncio.ensure_future(price_rides(cluster.bootstrap_servers, "1"))
            await producer.send_and_wait("rides", b"ride %d" % number, b"key")
            assert (await judge.getone()).value == b"ride %d: 12.50" % number
            pricing.cancel()
            await asyncio.wait([pricing])
        assert await judge.getmany(timeout_ms=200) == {}
