"""Alerts as a reader of the topic gets them, with their age: for the demo and the benchmark.

Here: following the topic, ages from the database's commit.
Not here: what is done with them.
"""

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from busway import App
from mybank.events import Alert
from mybank.topics import ALERTS

WAITING_MOST: Final = 100_000


@dataclass(slots=True)
class Received:
    """What has come.

    Attributes:
        ages_ms: when each alert came, by the clock of the loop, and how long after the database's commit that was.
        ids: of the alerts.
    """

    ages_ms: list[tuple[float, float]] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def percentile_ms(self, part: float, *, since: float = 0.0, until: float = float("inf")) -> float:
        """Of the ages of those that came in that time; not a number if none did."""
        ages = sorted(age for at, age in self.ages_ms if since <= at < until)
        return ages[min(int(len(ages) * part), len(ages) - 1)] if ages else float("nan")


@contextlib.asynccontextmanager
async def receiving(bootstrap_servers: str, schema_registry: str) -> AsyncIterator[Received]:
    """Follows the topic for as long as the block."""
    app = App("mybank-reader", bootstrap_servers, schema_registry)
    alerts = app.global_table(ALERTS, value=Alert, read_only=True)
    loop = asyncio.get_running_loop()
    received = Received()

    async def receive() -> None:
        while True:
            _, alert = await changes.get()
            if alert is not None and alert.alert_id not in received.ids:
                age = dt.datetime.now(dt.UTC) - alert.committed_at
                received.ids.add(alert.alert_id)
                received.ages_ms.append((loop.time(), age / dt.timedelta(milliseconds=1)))

    with alerts.changes(maxsize=WAITING_MOST) as changes:
        async with app, asyncio.TaskGroup() as group:
            following = group.create_task(receive())
            yield received
            following.cancel()
