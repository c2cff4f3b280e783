"""A service for tests of `busway run`: it tells which process handled what."""

import asyncio
import os
from pathlib import Path

from busway import App

app = App(
    "shop",
    bootstrap_servers=os.environ.get("BUSWAY_BOOTSTRAP_SERVERS", "localhost:9092"),
    commit_interval_s=0.02,
    consumer={"session_timeout_ms": 1_500, "heartbeat_interval_ms": 100},
)
orders = app.topic("orders", value=dict, format="json", partitions=3)
done = app.topic("orders.done", value=dict, format="json", partitions=1)


@app.on_assigned
async def assigned(partitions: object) -> None:
    """For tests that wait for it."""
    print("has", os.environ.get("BUSWAY_WORKER", "-"), os.getpid(), len(list(partitions)), flush=True)  # type: ignore[call-overload]


@app.subscribe(orders)
async def handle(order: dict) -> None:  # type: ignore[type-arg]
    """Slow on request, or hangs where a file says so: the test ends the process meanwhile."""
    print("begins", order["id"], os.getpid(), flush=True)
    if order.get("slow"):
        await asyncio.sleep(float(order["slow"]))
    if Path("hang").exists():
        await asyncio.Event().wait()
    await done.send({**order, "by": os.getpid()}, key=str(order["id"]))
