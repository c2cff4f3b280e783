"""A service for a test that ends its process: its handler blocks for ever, in a thread."""

import os
import threading

from busway import App

app = App(
    "hanging",
    bootstrap_servers=os.environ.get("BUSWAY_BOOTSTRAP_SERVERS", "localhost:9092"),
    drain_timeout_s=0.2,
)
things = app.topic("things", value=dict, format="json", partitions=1)


@app.subscribe(things)
def hang(value: dict) -> None:  # type: ignore[type-arg]
    """Never returns."""
    print("hangs", flush=True)
    threading.Event().wait()
