"""The examples of docs/TRANSACTIONS.md price every ride once, and count every sale once, as the page says."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import patient

from busway import App, Consumer, Producer
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


@pytest.mark.slow
async def test_the_example_of_the_page_runs() -> None:
    """Ended in the middle and begun again, it goes on where it was."""
    names = run(0)
    price_rides: Callable[[str], Awaitable[None]] = names["price_rides"]
    async with (
        asyncio.timeout(patient(60)),
        LocalCluster() as cluster,
        Producer(cluster.bootstrap_servers) as producer,
        Consumer(
            "prices",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as judge,
    ):
        for number in range(3):
            pricing = asyncio.ensure_future(price_rides(cluster.bootstrap_servers))
            await producer.send_and_wait("rides", b"ride %d" % number, b"key")
            assert (await judge.getone()).value == b"ride %d: 12.50" % number
            pricing.cancel()
            await asyncio.wait([pricing])
        assert await judge.getmany(timeout_ms=200) == {}
