"""A service for tests that end its process: it writes down each ride when it begins and when it has handled it."""

import asyncio
import os

from busway import App

app = App(
    "counting",
    bootstrap_servers=os.environ.get("BUSWAY_BOOTSTRAP_SERVERS", "localhost:9092"),
    commit_interval_s=0.02,
    consumer={"session_timeout_ms": 1_500, "heartbeat_interval_ms": 100},
)
rides = app.topic("rides", value=dict, format="json", partitions=2)
done = app.topic("done", value=dict, format="json", partitions=1)


@app.subscribe(rides)
async def handle(ride: dict) -> None:  # type: ignore[type-arg]
    """Slow on request: the test ends the process meanwhile."""
    print("begins", ride["id"], flush=True)
    if ride.get("slow"):
        await asyncio.sleep(float(ride["slow"]))
    await done.send(ride, key=str(ride["id"]))
    print("handled", ride["id"], flush=True)
