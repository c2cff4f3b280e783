"""Handlers that are exactly once: what they send, their tables and their offsets in one transaction."""

import asyncio
import dataclasses
from typing import Any

import pytest
from tests.support.patience import patient

from busway import (
    Admin,
    App,
    BadDeclaration,
    Batch,
    ConsumerRecord,
    Exponential,
    HandlerFailed,
    NewTopic,
    Producer,
    Retry,
)
from busway.app.handling.handler_output import SentTooLate
from busway.consumer.position_resolver import PositionResolver
from busway.testing import TestBus, crash_points
from busway_bus.log.producer_state import ProducerState
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import TRANSACTIONAL


@dataclasses.dataclass
class Sale:
    shop: str
    amount: int


class Shop:
    """A service that adds up what shops sell, without looking whether it has counted a sale before, and tells of each sale."""

    def __init__(self, **options: Any) -> None:
        self.app = App("adding", commit_interval_s=0.02)
        self.sales = self.app.topic("sales", value=Sale, format="json", partitions=3)
        self.receipts = self.app.topic("receipts", value=Sale, format="json", partitions=2)
        self.totals = self.app.table("totals", value=int, format="json")
        self.app.subscribe(self.sales, guarantee="exactly_once", **options)(self.add)
        self.failing: set[int] = set()

    async def add(self, sale: Sale) -> None:
        """The handler; fails when it has done everything."""
        total = self.totals.get(sale.shop, 0) + sale.amount
        await self.totals.put(sale.shop, total)
        await self.receipts.send(sale, key=sale.shop)
        await self.receipts.send_soon(dataclasses.replace(sale, shop="head office"), key="head office")
        if sale.amount in self.failing:
            raise ValueError(f"sale {sale.amount}")

    async def receipted(self, bus: TestBus) -> list[int]:
        """The sales with receipts for shops; each must be there once, and once at the head office."""
        amounts: dict[str, list[int]] = {"shops": [], "head office": []}
        for record in await bus.records(self.receipts):
            assert record.value is not None
            amounts["head office" if record.key == "head office" else "shops"].append(record.value.amount)
        assert sorted(amounts["shops"]) == sorted(amounts["head office"])
        return sorted(amounts["shops"])


async def sell(bus: TestBus, service: Shop, amounts: range) -> None:
    """So many sales, of five shops."""
    await asyncio.gather(*[bus.send(service.sales, Sale(f"shop {n % 5}", n), key=f"shop {n % 5}") for n in amounts])


def totals(amounts: set[int]) -> dict[str, int]:
    """What must come of these sales."""
    sums: dict[str, int] = {}
    for amount in amounts:
        sums[f"shop {amount % 5}"] = sums.get(f"shop {amount % 5}", 0) + amount
    return sums


@pytest.mark.parametrize("options", [{}, {"concurrency": 8}, {"ordering": "partition"}])
async def test_what_is_sent_and_kept_is_there_once(options: dict[str, Any]) -> None:
    """Records and rows of all calls are committed, with the offsets."""
    service = Shop(**options)
    async with service.app.test() as bus:
        await sell(bus, service, range(1, 200))
        await bus.settle()
        assert dict(service.totals) == totals(set(range(1, 200)))
        assert await service.receipted(bus) == list(range(1, 200))
        await bus.restart()
        assert dict(service.totals) == totals(set(range(1, 200)))
        await bus.settle()
        assert await service.receipted(bus) == list(range(1, 200))


async def test_a_failed_attempt_leaves_nothing_behind() -> None:
    """Neither what it sent nor what it put; only its dead letter, and others of other keys flow on."""
    service = Shop(retry=Retry(attempts=3, backoff=Exponential(0.01)))
    service.failing = {7, 8}
    async with service.app.test() as bus:
        await sell(bus, service, range(1, 40))
        await bus.settle()
        handled = set(range(1, 40)) - {7, 8}
        assert dict(service.totals) == totals(handled)
        assert await service.receipted(bus) == sorted(handled)
        letters = await bus.dead_letters(service.sales)
        assert sorted(letter.error for letter in letters) == ["ValueError: sale 7", "ValueError: sale 8"]


@pytest.mark.slow
@pytest.mark.parametrize("point", crash_points())
async def test_nothing_counts_twice_wherever_the_service_is_killed(point: str) -> None:
    """Killed twice at the step; the handler does not look whether it has counted a sale before."""
    service = Shop()
    async with service.app.test() as bus:
        await sell(bus, service, range(1, 21))
        await bus.settle()
        for begin in (21, 41):
            crash = bus.crash(at=point)
            await sell(bus, service, range(begin, begin + 20))
            await crash
        await sell(bus, service, range(61, 66))
        await bus.settle()
        assert dict(service.totals) == totals(set(range(1, 66)))
        assert await service.receipted(bus) == list(range(1, 66))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"consumer": {"isolation_level": "read_uncommitted"}}, "read what is committed"),
        ({"producer": {"enable_idempotence": False}}, "needs enable_idempotence"),
    ],
)
async def test_options_that_do_not_go_with_it_are_refused(options: dict[str, Any], words: str) -> None:
    """When the app starts."""
    app = App("refused", **options)
    sales = app.topic("sales", value=Sale, format="json", partitions=1)

    @app.subscribe(sales, guarantee="exactly_once")
    async def handle(sale: Sale) -> None:
        """Never called."""

    with pytest.raises(BadDeclaration, match=words):
        async with app.test():
            pass


async def test_a_batch_is_one_piece() -> None:
    """A batch that fails is halved; what its parts did is there once."""
    app = App("batches", commit_interval_s=0.02)
    sales = app.topic("sales", value=Sale, format="json", partitions=1)
    sums = app.topic("sums", value=int, format="json", partitions=1)
    table = app.table("counted", value=int, format="json")

    @app.publish(sums, key=lambda _: "sum")
    @app.subscribe(sales, batch=Batch(max_records=16), retry=Retry(attempts=1), guarantee="exactly_once")
    async def add(records: list[ConsumerRecord[str, Sale]]) -> int:
        amounts = [record.value.amount for record in records if record.value is not None]
        await table.put("all", table.get("all", 0) + sum(amounts), partition=0)
        await table.flush()
        if 13 in amounts:
            raise ValueError("thirteen")
        return sum(amounts)

    async with app.test() as bus:
        await asyncio.gather(*[bus.send(sales, Sale("shop", n), key="shop") for n in range(1, 31)])
        await bus.settle()
        expected = sum(range(1, 31)) - 13
        assert table["all"] == expected
        assert sum(record.value or 0 for record in await bus.records(sums)) == expected
        assert len(await bus.dead_letters(sales)) == 1


async def test_flushed_rows_keep_their_place_before_those_that_are_put_again() -> None:
    """One thing passes from row to row within a call: in no beginning of the topic do two of them have it. A call that fails after it has
    flushed leaves no row behind."""
    app = App("passing", commit_interval_s=0.02)
    sales = app.topic("sales", value=Sale, format="json", partitions=1)
    having = app.table("having", value=bool, format="json", partitions=1)

    @app.subscribe(sales, retry=Retry(attempts=1), ordering="partition", guarantee="exactly_once")
    async def give_on(sale: Sale) -> None:
        giver, taker = ("a", "b") if having.get("a") else ("b", "a")
        await having.put(taker, False)
        await having.put(giver, False)
        await having.flush()
        await having.put(taker, True)
        if sale.amount == 2:
            raise ValueError("two")

    async with app.test() as bus:
        for amount in range(1, 5):
            await bus.send(sales, Sale("shop", amount), key="shop")
        await bus.settle()
        row_records = [(record.key, record.value) for record in await bus.records(having.topic)]
        to_a = [("a", False), ("b", False), ("a", True)]
        to_b = [("b", False), ("a", False), ("b", True)]
        assert row_records == [*to_a, *to_b, *to_a]
        assert dict(having) == {"a": True, "b": False}
        await bus.restart()
        assert dict(having) == {"a": True, "b": False}


async def test_a_row_that_is_put_from_outside_keeps_its_place() -> None:
    """It goes into a transaction as well, and returns when that is committed."""
    service = Shop()
    async with service.app.test() as bus:
        await sell(bus, service, range(1, 6))
        await bus.settle()
        await service.totals.put("shop 1", 1000)
        await sell(bus, service, range(6, 7))
        await bus.settle()
        assert service.totals["shop 1"] == 1006
        await bus.restart()
        assert service.totals["shop 1"] == 1006


async def test_what_cannot_be_exactly_once_is_refused_by_name() -> None:
    """At the declaration, with the remedy."""
    app = App("refused")
    sales = app.topic("sales", value=Sale, format="json")

    async def handle(sale: Sale) -> None:
        """Never called."""

    with pytest.raises(BadDeclaration, match="guarantee is at_least_once or exactly_once, not 'at_most_once'"):
        app.subscribe(sales, guarantee="at_most_once")(handle)  # type: ignore[arg-type]
    with pytest.raises(BadDeclaration, match="concurrency is at most 250"):
        app.subscribe(sales, guarantee="exactly_once", concurrency=251)(handle)
    with pytest.raises(BadDeclaration, match="transactional_id"):
        App("refused", producer={"transactional_id": "mine"})
    app.subscribe(sales)(handle)
    with pytest.raises(BadDeclaration, match="one handler in an app"):
        app.subscribe(sales, guarantee="exactly_once")(handle)


async def test_a_fenced_producer_is_replaced() -> None:
    """Its partitions are begun again from what is committed: nothing is lost, nothing counts twice, the app goes on."""
    service = Shop()
    async with service.app.test() as bus, Admin(service.app.bootstrap_servers) as admin:
        for begin in (1, 21, 41):
            await sell(bus, service, range(begin, begin + 20))
            await bus.settle()
            name = service.app.producers[1].options.transactional_id
            assert name is not None
            await admin.abort_transaction(name)
        await sell(bus, service, range(61, 81))
        await bus.settle()
        assert dict(service.totals) == totals(set(range(1, 81)))
        assert await service.receipted(bus) == list(range(1, 81))
        worker = service.app.worker
        assert worker is not None
        assert worker.transactor is not None
        assert worker.transactor.outcomes.renewed == 3
        assert worker.transactor.outcomes.problem is None


async def test_a_record_that_brokers_refuse_goes_to_the_dead_letters_alone() -> None:
    """What its handler sent is larger than its topic takes, which shows when it is sent: others of the same transaction are not lost."""
    app = App("refusing", commit_interval_s=0.05)
    orders = app.topic("orders", value=int, format="json", partitions=2)
    texts = app.topic("texts", value=str, format="json", partitions=1, configs={"max.message.bytes": "2000"})
    counts = app.table("order-counts", value=int, format="json")

    @app.publish(texts)
    @app.subscribe(orders, guarantee="exactly_once", concurrency=4)
    async def write(number: int, record: ConsumerRecord[str, int]) -> str:
        assert record.key is not None
        await counts.put(record.key, counts.get(record.key, 0) + 1)
        return "x" * (5000 if number % 10 == 7 else 10) + str(number)

    async with app.test() as bus:
        await asyncio.gather(*[bus.send(orders, n, key=f"k{n % 4}") for n in range(40)])
        await bus.settle(60)
        written = [(record.value or "").strip("x") for record in await bus.records(texts)]
        assert sorted(map(int, written)) == [n for n in range(40) if n % 10 != 7]
        letters = await bus.dead_letters(orders)
        assert sorted(int(letter.value or b"0") for letter in letters) == [7, 17, 27, 37]
        assert sum(counts.values()) == 36
        await bus.restart()
        assert sum(counts.values()) == 36


async def test_what_is_wrong_with_a_transaction_is_no_records_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker knows of no such transaction, for a moment: it is made again, and nothing goes to the dead letters."""
    app = App("copying", commit_interval_s=0.02)
    orders = app.topic("orders", value=int, format="json", partitions=1)
    copies = app.topic("copies", value=int, format="json", partitions=1)

    @app.publish(copies)
    @app.subscribe(orders, guarantee="exactly_once")
    async def copy(number: int) -> int:
        return number

    refused = 0
    judge = ProducerState.check

    def check(self: ProducerState, header: Any, verification: Any = None) -> Any:
        nonlocal refused
        if header.attributes & TRANSACTIONAL and refused < 3:
            refused += 1
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "no transaction of the producer is known to be ongoing")
        return judge(self, header, verification)

    async with app.test() as bus:
        monkeypatch.setattr(ProducerState, "check", check)
        await bus.send(orders, 1)
        await bus.settle()
        assert [record.value for record in await bus.records(copies)] == [1]
        assert await bus.dead_letters(orders) == []
    assert refused == 3


async def test_brokers_that_keep_too_little_beside_an_offset_stop_an_app_with_the_remedy() -> None:
    """What is finished ahead is kept there; without it those records would come twice after a crash."""
    held = asyncio.Event()
    async with LocalCluster(properties={"offset.metadata.max.bytes": "1"}) as cluster:
        app = App("ahead", cluster.bootstrap_servers, commit_interval_s=0.02, drain_timeout_s=0.1)
        sales = app.topic("sales", value=Sale, format="json", partitions=1)

        @app.subscribe(sales, guarantee="exactly_once", concurrency=2)
        async def add(sale: Sale) -> None:
            if not sale.amount:
                await held.wait()

        async with app:
            await sales.send(Sale("a", 0), key="a")
            await sales.send(Sale("b", 1), key="b")
            with pytest.raises(
                HandlerFailed,
                match=r"sales-0: .* ahead of offset 0.* offset\.metadata\.max\.bytes .* lower concurrency",
            ):
                await app.wait()
            held.set()


async def test_members_that_come_and_go_double_nothing() -> None:
    """A second instance joins and leaves while sales come in."""
    service, other = Shop(), Shop()
    async with service.app.test() as bus:
        other.app.bootstrap_servers = service.app.bootstrap_servers
        other.app.schema_registry = service.app.schema_registry
        number = 1

        async def load(count: int) -> None:
            nonlocal number
            for _ in range(count):
                await sell(bus, service, range(number, number + 5))
                number += 5

        for _ in range(3):
            loading = asyncio.ensure_future(load(20))
            await other.app.start()
            await loading
            loading = asyncio.ensure_future(load(20))
            await other.app.stop()
            await loading
        await bus.settle()
        assert dict(service.totals) == totals(set(range(1, number)))
        assert await service.receipted(bus) == list(range(1, number))


async def test_what_a_task_sends_that_outlives_its_handler_is_refused() -> None:
    """Its handler's transaction does not wait for it, and outside of one it might be there twice."""
    app = App("outliving")
    orders = app.topic("orders", value=int, format="json", partitions=1)
    notes = app.topic("notes", value=int, format="json", partitions=1)
    go = asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    async def later(number: int) -> None:
        await go.wait()
        await notes.send(number)

    @app.subscribe(orders, guarantee="exactly_once")
    async def handle(number: int) -> None:
        tasks.append(asyncio.create_task(later(number)))

    async with app.test() as bus:
        await bus.send(orders, 1, key="a")
        await bus.settle()
        go.set()
        with pytest.raises(SentTooLate, match="outlived its handler"):
            await tasks[0]
        assert await bus.records(notes) == []


async def test_no_offset_of_a_topic_that_was_created_again_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """While its beginning is looked for, and after: a restart would skip records of the new topic."""
    app = App("recreated", commit_interval_s=0.02)
    orders = app.topic("orders", value=int, format="json", partitions=1)
    texts = app.topic("texts", value=str, format="json", partitions=1)
    holds, release, looks, placing = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    sent: list[int] = []
    by_policy, send_offsets = PositionResolver.by_policy, Producer.send_offsets_to_transaction

    async def late(resolver: PositionResolver, leader: int, chosen: Any) -> Any:
        looks.set()
        await placing.wait()
        return await by_policy(resolver, leader, chosen)

    async def noted(producer: Producer, offsets: Any, group: Any) -> None:
        sent.extend(at.offset for at in offsets.values())
        await send_offsets(producer, offsets, group)

    @app.publish(texts)
    @app.subscribe(orders, guarantee="exactly_once")
    async def write(number: int) -> str:
        if number == 2:
            holds.set()
            await release.wait()
        return str(number)

    async with app.test() as bus, Admin(app.bootstrap_servers) as admin, asyncio.timeout(patient(30)):
        for number in (0, 1):
            await bus.send(orders, number)
        await bus.settle()
        await bus.send(orders, 2)
        await holds.wait()
        monkeypatch.setattr(PositionResolver, "by_policy", late)
        monkeypatch.setattr(Producer, "send_offsets_to_transaction", noted)
        await admin.delete_topics(["orders"])
        await admin.create_topics([NewTopic("orders", 1)])
        await looks.wait()
        release.set()
        assert app.worker is not None
        assert app.worker.transactor is not None
        while not sent and not app.worker.transactor.outcomes.aborted:
            await asyncio.sleep(0)
        assert sent == []
        placing.set()
        await bus.send(orders, 3)
        await bus.settle()
        assert set(sent) <= {0, 1}
        assert [record.value for record in await bus.records(texts)] == ["0", "1", "2", "3"]
