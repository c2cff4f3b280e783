"""Several handlers change the rows of one table, on a real broker: none decides on what another has not finished."""

import asyncio
import dataclasses
from typing import Any

import pytest

from busway import App, ConsumerRecord, Extension, Retry, Table, Topic
from busway.app.extending.extension import Call
from busway.app.model.topic import Route

pytestmark = pytest.mark.slow


@dataclasses.dataclass
class Sale:
    shop: str
    amount: int


class Arrived(Extension):
    """Around the tables: tells when a handler's call has come to them."""

    def __init__(self) -> None:
        self.of: dict[str, asyncio.Event] = {}

    def around(self, route: Route, call: Call) -> Call:
        """Set the event of the route's topic."""
        arrived = self.of.setdefault(route.topics[0].name, asyncio.Event())

        async def called(given: Any) -> Any:
            arrived.set()
            return await call(given)

        return called


class Shops:
    """A service whose table is changed for two topics."""

    def __init__(self, **options: Any) -> None:
        self.app = App("shops", **{"commit_interval_s": 0.02, **options})
        self.arrived = self.app.extend(Arrived())
        self.sales = self.app.topic("sales", value=Sale, format="json", partitions=1)
        self.refunds = self.app.topic("refunds", value=Sale, format="json", partitions=1)
        self.totals: Table[str, int] = self.app.table("totals", value=int, format="json")
        self.at_work = asyncio.Event()

    async def other_came(self, topic: Topic[Any, Any]) -> None:
        """The handler that calls it is at work, and the one of that topic has come meanwhile and done what it may."""
        self.at_work.set()
        await self.arrived.of[topic.name].wait()
        for _ in range(50):
            await asyncio.sleep(0)

    async def add(self, sale: Sale, record: ConsumerRecord[str, Sale]) -> None:
        """A decision that rests on the row as it is."""
        if not self.totals.includes(sale.shop, record):
            await self.totals.put(sale.shop, self.totals.get(sale.shop, 0) + sale.amount)


async def test_no_decision_is_lost_between_two_handlers_of_a_row() -> None:
    """One has read a row and waits for something; the other changes the row only when the first one has."""
    shops = Shops()

    @shops.app.subscribe(shops.sales)
    async def sold(sale: Sale) -> None:
        before = shops.totals.get(sale.shop, 0)
        await shops.other_came(shops.refunds)
        await shops.totals.put(sale.shop, before + sale.amount)

    shops.app.subscribe(shops.refunds)(shops.add)
    async with shops.app.test() as bus:
        await bus.send(shops.sales, Sale("a", 100), key="a")
        await shops.at_work.wait()
        await bus.send(shops.refunds, Sale("a", -1), key="a")
        await bus.settle()
        assert dict(shops.totals) == {"a": 99}
        assert [record.value for record in await bus.records(shops.totals.topic)] == [100, 99]


async def test_rows_are_in_the_topic_in_the_order_of_the_decisions() -> None:
    """A row that rests on another one is behind it in the topic, so a crash in between never leaves it there alone."""
    shops = Shops()

    @shops.app.subscribe(shops.sales, ordering="partition")
    async def sold(sale: Sale) -> None:
        await shops.totals.put(sale.shop, sale.amount)
        await shops.other_came(shops.refunds)

    @shops.app.subscribe(shops.refunds, ordering="partition")
    async def refunded(sale: Sale) -> None:
        await shops.totals.put("refunds", shops.totals["a"] + sale.amount)

    async with shops.app.test() as bus:
        await bus.send(shops.sales, Sale("a", 100), key="a")
        await shops.at_work.wait()
        await bus.send(shops.refunds, Sale("b", -1), key="b")
        await bus.settle()
        row_records = [(record.key, record.value) for record in await bus.records(shops.totals.topic)]
        assert row_records == [("a", 100), ("refunds", 99)]


async def test_nobody_decides_on_what_is_taken_back() -> None:
    """A handler fails after it has put; the other finds the row as it was, and the next attempt finds what the other has put."""
    shops = Shops()
    attempts: list[int] = []

    @shops.app.subscribe(shops.sales, retry=Retry(attempts=2))
    async def sold(sale: Sale, record: ConsumerRecord[str, Sale]) -> None:
        attempts.append(shops.totals.get(sale.shop, 0))
        await shops.add(sale, record)
        await shops.other_came(shops.refunds)
        if len(attempts) == 1:
            raise ConnectionError("the till is away")

    shops.app.subscribe(shops.refunds)(shops.add)
    async with shops.app.test() as bus:
        await bus.send(shops.sales, Sale("a", 100), key="a")
        await shops.at_work.wait()
        await bus.send(shops.refunds, Sale("a", -1), key="a")
        await bus.settle()
        assert (dict(shops.totals), attempts) == ({"a": 99}, [0, -1])
        assert [record.value for record in await bus.records(shops.totals.topic)] == [-1, 99]


async def test_other_keys_do_not_wait() -> None:
    """A call that takes long holds its own key: the handlers of another one go on meanwhile, and one that takes the partition goes first."""
    shops = Shops()
    done: list[str] = []
    free = asyncio.Event()

    @shops.app.subscribe(shops.sales, concurrency=2)
    async def sold(sale: Sale, record: ConsumerRecord[str, Sale]) -> None:
        if sale.shop == "slow":
            shops.at_work.set()
            await free.wait()
        await shops.add(sale, record)
        done.append(sale.shop)

    @shops.app.subscribe(shops.refunds)
    async def refunded(sale: Sale, record: ConsumerRecord[str, Sale]) -> None:
        await shops.add(sale, record)
        done.append(f"-{sale.shop}")
        if sale.shop == "b":
            free.set()

    async with shops.app.test() as bus:
        await bus.send(shops.sales, Sale("slow", 100), key="slow")
        await shops.at_work.wait()
        await bus.send(shops.sales, Sale("b", 10), key="b")
        await bus.send(shops.refunds, Sale("b", -1), key="b")
        await bus.settle()
        assert (sorted(done[:2]), done[2:]) == (["-b", "b"], ["slow"])
        assert dict(shops.totals) == {"slow": 100, "b": 9}


async def test_to_wait_for_a_turn_is_not_to_take_long() -> None:
    """A handler with a deadline waits behind a call that is slower than that, and is called with all of its time left."""
    shops = Shops()

    @shops.app.subscribe(shops.sales)
    async def sold(sale: Sale, record: ConsumerRecord[str, Sale]) -> None:
        await shops.other_came(shops.refunds)
        await asyncio.sleep(0.3)  # what is shown is that time does not count
        await shops.add(sale, record)

    shops.app.subscribe(shops.refunds, timeout_s=0.2, retry=Retry(attempts=1))(shops.add)
    async with shops.app.test() as bus:
        await bus.send(shops.sales, Sale("a", 100), key="a")
        await shops.at_work.wait()
        await bus.send(shops.refunds, Sale("a", -1), key="a")
        await bus.settle()
        assert (dict(shops.totals), await bus.dead_letters(shops.refunds)) == ({"a": 99}, [])


async def test_an_app_that_stops_leaves_no_turn_behind() -> None:
    """A handler is cancelled in its turn and another one while it waits for it: both records are handled at the next start."""
    shops = Shops(drain_timeout_s=0.05)
    calls: list[int] = []

    @shops.app.subscribe(shops.sales)
    async def sold(sale: Sale, record: ConsumerRecord[str, Sale]) -> None:
        calls.append(sale.amount)
        if len(calls) == 1:
            await shops.other_came(shops.refunds)
            await asyncio.Event().wait()
        await shops.add(sale, record)

    shops.app.subscribe(shops.refunds)(shops.add)
    async with shops.app.test() as bus:
        await bus.send(shops.sales, Sale("a", 100), key="a")
        await shops.at_work.wait()
        await bus.send(shops.refunds, Sale("a", -1), key="a")
        await shops.arrived.of["refunds"].wait()
        await bus.restart()
        await bus.settle()
        assert (dict(shops.totals), calls) == ({"a": 99}, [100, 100])
