"""A service for tests that freeze or kill its process: it adds up sales in a table, and tells of each of them."""

import asyncio
import os
import sys
from typing import Any

from busway import App

app = App(
    "adding",
    bootstrap_servers=os.environ.get("BUSWAY_BOOTSTRAP_SERVERS", "localhost:9092"),
    commit_interval_s=0.02,
    consumer={"session_timeout_ms": 1_500, "heartbeat_interval_ms": 100},
)
sales = app.topic("sales", value=dict, format="json", partitions=2)
receipts = app.topic("receipts", value=dict, format="json", partitions=2)
totals = app.table("totals", value=dict, format="json")
guarantee: Any = os.environ.get("ADDING_GUARANTEE", "exactly_once")
waits = "ADDING_WAITS" in os.environ


@app.subscribe(sales, guarantee=guarantee)
async def add(sale: dict) -> None:  # type: ignore[type-arg]
    """Count a sale, without looking whether it is counted already; a slow one once a line comes in, where the process will be stopped meanwhile."""
    total = totals.get(sale["shop"], {"count": 0, "sum": 0})
    print("begins", sale["number"], flush=True)
    if waits and sale.get("slow"):
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await totals.put(sale["shop"], {"count": total["count"] + 1, "sum": total["sum"] + sale["number"]})
    await receipts.send(sale, key=sale["shop"])
