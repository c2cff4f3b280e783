"""Services that are killed at every step, brokers that are killed under them, time that the test moves."""

import asyncio
import dataclasses
import itertools

import pytest
from tests.support.patience import patient, patient_ms

from busway import Admin, App, ConsumerRecord, Exponential, Extension, NotRunning, Retry
from busway.testing import crash_points

pytestmark = pytest.mark.slow
SESSION_MS = patient_ms(45_000)
"""More than twice as long as a test bus waits: a dead member that kept others waiting would be noticed."""


@dataclasses.dataclass
class Sale:
    shop: str
    amount: int


class Counting:
    """A service that counts sales in a table."""

    def __init__(self) -> None:
        self.app = App("counting", commit_interval_s=0.02, consumer={"session_timeout_ms": SESSION_MS})
        self.sales = self.app.topic("sales", value=Sale, format="json", partitions=3)
        self.totals = self.app.table("totals", value=int, format="json")
        self.app.subscribe(self.sales)(self.add)
        self.calls: list[int] = []

    async def add(self, sale: Sale, record: ConsumerRecord[str, Sale]) -> None:
        """The handler."""
        self.calls.append(sale.amount)
        if not self.totals.includes(sale.shop, record):
            await self.totals.put(sale.shop, self.totals.get(sale.shop, 0) + sale.amount)


class Till:
    """Another service that writes sales, and knows what must come of them."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.app = App("till", bootstrap_servers=bootstrap_servers)
        self.sales = self.app.topic("sales", value=Sale, format="json")
        self.expected: dict[str, int] = {}
        self._numbers = itertools.count(1)

    async def sell(self, count: int) -> None:
        """So many sales, acknowledged."""
        sent = []
        for number in itertools.islice(self._numbers, count):
            shop = f"shop {number % 5}"
            self.expected[shop] = self.expected.get(shop, 0) + number
            sent.append(await self.sales.send_soon(Sale(shop, number), key=shop))
        await asyncio.gather(*sent)


@pytest.mark.parametrize("point", crash_points())
async def test_totals_are_exact_wherever_the_service_is_killed(point: str) -> None:
    """Killed twice at the step, with records before, during and after: nothing is lost, nothing counts twice."""
    service = Counting()
    async with service.app.test() as bus:
        till = Till(service.app.bootstrap_servers)
        async with till.app:
            await till.sell(20)
            await bus.settle()
            for _ in range(2):
                crash = bus.crash(at=point)
                await till.sell(20)
                await crash
            await till.sell(5)
            await bus.settle()
            assert dict(service.totals) == till.expected
            await bus.restart()
            assert dict(service.totals) == till.expected
    assert set(service.calls) == set(range(1, 66))


@pytest.mark.parametrize(
    ("point", "times"), [("before-handler", 1), ("after-handler", 2), ("before-commit", 2), ("after-commit", 1)]
)
async def test_a_killed_service_does_again_what_it_had_not_committed(point: str, times: int) -> None:
    """One record: before the commit its handler is called again, after it not; the dead member keeps no other waiting."""
    service = Counting()
    async with service.app.test() as bus:
        crash = bus.crash(at=point)
        await bus.send(service.sales, Sale("a", 7), key="a")
        await crash
        await bus.settle()
        assert service.calls == [7] * times
        assert dict(service.totals) == {"a": 7}


class Leaving(Extension):
    """Gives the app's partitions up in the moment of its first commit."""

    def __init__(self) -> None:
        self.leaving: asyncio.Task[None] | None = None

    async def reached(self, point: str, topic: str, partition: int, offset: int) -> None:
        """Who gives up waits behind the commit under way, to commit then."""
        if point == "before-commit" and self.leaving is None:
            worker = self.app.worker
            assert worker is not None
            self.leaving = asyncio.ensure_future(worker.on_partitions_revoked(tuple(worker.consumer.assignment())))
            await asyncio.sleep(0)

    async def starting(self, app: App) -> None:
        """Whose."""
        self.app = app


async def test_a_service_that_is_giving_its_partitions_up_can_be_killed() -> None:
    """The commit of the partitions that go waits behind the one at which the service dies, and is not waited for."""
    service = Counting()
    service.app.extend(Leaving())
    async with service.app.test() as bus, asyncio.timeout(patient(30)):
        crash = bus.crash(at="before-commit")
        await bus.send(service.sales, Sale("a", 7), key="a")
        await crash
        await bus.settle()
        assert dict(service.totals) == {"a": 7}


async def test_a_record_under_way_is_not_settled() -> None:
    """What the app itself has sent and no caller waits for is handled when the bus has settled."""
    service = Counting()
    async with service.app.test() as bus:
        for number in range(200):
            await service.sales.send_soon(Sale("a", number), key="a")
        await bus.settle()
        assert dict(service.totals) == {"a": sum(range(200))}


async def test_what_a_killed_service_was_about_to_send_is_not_sent() -> None:
    """From that moment on nothing leaves it: neither a record nor a commit, and later calls are refused."""
    service = Counting()
    async with service.app.test() as bus:
        crash = bus.crash(at="before-handler")
        await bus.send(service.sales, Sale("a", 7), key="a")
        async with asyncio.timeout(patient(10)):
            while bus._probe.at is None:
                await asyncio.sleep(0)
        with pytest.raises(NotRunning):
            await service.sales.send(Sale("b", 1), key="b")
        await crash
        await bus.settle()
        assert [record.value for record in await bus.records(service.sales)] == [Sale("a", 7)]


async def test_a_crash_that_does_not_come_is_told() -> None:
    """A step that nothing reaches, a step that there is not, a crash that was not awaited."""
    service = Counting()

    async def forget() -> None:
        async with service.app.test() as bus:
            with pytest.raises(ValueError, match="before-handler, after-handler"):
                bus.crash(at="lunch")
            bus.crash(at="after-send")

    with pytest.raises(AssertionError, match=r"await what bus\.crash"):
        await forget()
    with pytest.raises(ValueError, match="lunch"):
        crash_points("lunch")
    assert crash_points("after-send", "after-commit") == ("after-send", "after-commit")
    async with service.app.test() as bus:  # and the app can be tested again
        await bus.send(service.sales, Sale("a", 1), key="a")
        await bus.settle()
        assert dict(service.totals) == {"a": 1}


@pytest.mark.parametrize("end", ["restart_broker", "crash_broker"])
async def test_a_service_outlives_its_broker(end: str) -> None:
    """Records before and after; all are counted once, and what was acknowledged is there."""
    service = Counting()
    async with service.app.test() as bus:
        till = Till(service.app.bootstrap_servers)
        async with till.app:
            await till.sell(30)
            await getattr(bus, end)()
            await till.sell(30)
            await bus.settle()
            assert dict(service.totals) == till.expected
            assert len(await bus.records(service.sales)) == 60


async def test_a_test_moves_the_clock() -> None:
    """Each wait ends when its time has come and not before; what fails again waits again within the same step of the clock."""
    app = App("moody")
    sales = app.topic("sales", value=Sale, format="json", partitions=1)
    attempts: list[float] = []

    @app.subscribe(sales, retry=Retry(attempts=4, backoff=Exponential(initial=10, factor=2, max=100, jitter=0)))
    async def fail(sale: Sale) -> None:
        attempts.append(bus._clock.now_s)
        raise ConnectionError("away")

    async with app.test(clock="manual") as bus:
        await bus.send(sales, Sale("a", 1))
        async with asyncio.timeout(patient(10)):
            while not bus.waited_s:
                await asyncio.sleep(0)
        await bus.advance(9.5)
        assert attempts == [0]
        await bus.advance(1)
        assert attempts == [0, 10]
        await bus.advance(100)
        await bus.settle()
        assert (attempts, bus.waited_s) == ([0, 10, 30, 70], [10, 20, 40])
        assert len(await bus.dead_letters(sales)) == 1


async def test_time_that_is_skipped_cannot_be_moved() -> None:
    """The message says how to get a clock."""
    app = App("quick")
    async with app.test() as bus:
        with pytest.raises(ValueError, match='clock="manual"'):
            await bus.advance(1)


async def test_the_clock_moves_every_timer() -> None:
    """A handler's sleep and deadline, commits, sessions: minutes pass in no time, and the member stays in its group."""
    app = App("patient")
    sales = app.topic("sales", value=Sale, format="json", partitions=1)
    timers: list[tuple[str, float]] = []

    @app.subscribe(sales, timeout_s=100, retry=Retry(attempts=1), dead_letter=True)
    async def wait(sale: Sale) -> None:
        timers.append((sale.shop, bus._clock.now_s))
        await asyncio.sleep(sale.amount)
        timers.append((sale.shop, bus._clock.now_s))

    async with app.test(clock="manual") as bus, Admin(app.bootstrap_servers) as admin:
        assert app.worker is not None
        member = app.worker.consumer.member_id()
        await bus.send(sales, Sale("short", 60))
        await bus.advance(59.9)
        assert timers == [("short", 0)]
        assert not any(at.offset for at in (await admin.list_group_offsets("patient")).values())
        await bus.advance(2)
        assert timers == [("short", 0), ("short", 60)]
        assert [at.offset for at in (await admin.list_group_offsets("patient")).values()] == [1]
        await bus.send(sales, Sale("long", 150))
        await bus.advance(200)
        await bus.settle()
        assert [letter.error for letter in await bus.dead_letters(sales)] == [
            "HandlerTimedOut: the handler took longer than 100 s"
        ]
        assert app.worker.consumer.member_id() == member
