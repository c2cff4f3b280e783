"""A service for tests of `busway run`: it tells which process handled what."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from busway import App

app = App(
    "shop",
    bootstrap_servers=os.environ.get("BUSWAY_BOOTSTRAP_SERVERS", "localhost:9092"),
    commit_interval_s=0.02,
    consumer={"session_timeout_ms": int(os.environ.get("SHOP_SESSION_MS", "1500")), "heartbeat_interval_ms": 100},
)
orders = app.topic("orders", value=dict, format="json", partitions=3)
done = app.topic("orders.done", value=dict, format="json", partitions=1)


def line(*words: object) -> None:
    """In one write: the workers share a pipe, and an unbuffered `print` writes word by word."""
    os.write(sys.stdout.fileno(), (" ".join(map(str, words)) + "\n").encode())


def tell() -> None:
    """What each task waits for: SIGUSR2 asks for it where a test waits in vain."""
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stdout)
    sys.stdout.flush()


@app.on_assigned
async def assigned(partitions: object) -> None:
    """For tests that wait for it."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, tell)
    line("has", os.environ.get("BUSWAY_WORKER", "-"), os.getpid(), len(list(partitions)))  # type: ignore[call-overload]


@app.subscribe(orders)
async def handle(order: dict) -> None:  # type: ignore[type-arg]
    """Slow on request, or hangs where a file says so: the test ends the process meanwhile."""
    line("begins", order["id"], os.getpid())
    if order.get("slow"):
        await asyncio.sleep(float(order["slow"]))
    if Path("hang").exists():
        await asyncio.Event().wait()
    await done.send({**order, "by": os.getpid()}, key=str(order["id"]))
