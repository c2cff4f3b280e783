"""The example of docs/TRANSACTIONS.md prices every ride once, as the page says."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from busway import Consumer, Producer
from busway_bus.testing.local_cluster import LocalCluster

PAGE = (Path(__file__).parents[2] / "docs" / "TRANSACTIONS.md").read_text()


@pytest.mark.slow
async def test_the_example_of_the_page_runs() -> None:
    """Ended in the middle and begun again, it goes on where it was."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    price_rides: Callable[[str], Awaitable[None]] = names["price_rides"]
    async with (
        asyncio.timeout(60),
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
