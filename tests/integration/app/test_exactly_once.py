"""Handlers that are exactly once: what they send, their tables and their offsets in one transaction."""

import asyncio
import dataclasses
from typing import Any

import pytest

from busway import App, BadDeclaration, Batch, ConsumerRecord, Exponential, Retry
from busway.testing import TestBus, crash_points


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

    async def told(self, bus: TestBus) -> list[int]:
        """The sales that shops were told of; each must be there once, and once at the head office."""
        found: dict[str, list[int]] = {"shops": [], "head office": []}
        for record in await bus.records(self.receipts):
            assert record.value is not None
            found["head office" if record.key == "head office" else "shops"].append(record.value.amount)
        assert sorted(found["shops"]) == sorted(found["head office"])
        return sorted(found["shops"])


async def sell(bus: TestBus, service: Shop, amounts: range) -> None:
    """So many sales, of five shops."""
    await asyncio.gather(*[bus.send(service.sales, Sale(f"shop {n % 5}", n), key=f"shop {n % 5}") for n in amounts])


def totals(amounts: set[int]) -> dict[str, int]:
    """What must come of these sales."""
    found: dict[str, int] = {}
    for amount in amounts:
        found[f"shop {amount % 5}"] = found.get(f"shop {amount % 5}", 0) + amount
    return found


@pytest.mark.parametrize("options", [{}, {"concurrency": 8}, {"ordering": "partition"}])
async def test_what_is_sent_and_kept_is_there_once(options: dict[str, Any]) -> None:
    """Records and rows of all calls are committed, with the offsets."""
    service = Shop(**options)
    async with service.app.test() as bus:
        await sell(bus, service, range(1, 200))
        await bus.settle()
        assert dict(service.totals) == totals(set(range(1, 200)))
        assert await service.told(bus) == list(range(1, 200))
        await bus.restart()
        assert dict(service.totals) == totals(set(range(1, 200)))
        await bus.settle()
        assert await service.told(bus) == list(range(1, 200))


async def test_a_failed_attempt_leaves_nothing_behind() -> None:
    """Neither what it sent nor what it put; only its dead letter, and others of other keys flow on."""
    service = Shop(retry=Retry(attempts=3, backoff=Exponential(0.01)))
    service.failing = {7, 8}
    async with service.app.test() as bus:
        await sell(bus, service, range(1, 40))
        await bus.settle()
        handled = set(range(1, 40)) - {7, 8}
        assert dict(service.totals) == totals(handled)
        assert await service.told(bus) == sorted(handled)
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
        assert await service.told(bus) == list(range(1, 66))


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
