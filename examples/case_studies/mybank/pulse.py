"""What the page shows live: alerts as they are raised, and once a second how many transactions came and how old they were.

Here: counting, the last minutes, who listens.
Not here: HTTP (`http`), what is an alert (`domain`).
"""

import asyncio
import contextlib
import datetime as dt
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from busway import App
from busway.web import Feed
from mybank.events import Alert, Transaction

TICK_S: Final = 1.0
TICKS_KEPT: Final = 120
AGES_MOST: Final = 5000
"""Of one tick; more say the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A second of the service.

    Attributes:
        at: its end, in UTC.
        transactions: that were judged per second.
        alerts: that were raised per second.
        p50_ms, p99_ms: from the database's commit until the transaction was judged, a moment before its alert is committed; None without any.
    """

    at: dt.datetime
    transactions: float
    alerts: float
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What a listener gets: one of the two."""

    alert: Alert | None = None
    tick: Tick | None = None


class Pulse:
    """Counts what the handler does; `running` is the app's lifespan."""

    def __init__(self) -> None:
        self.feed: Feed[Beat] = Feed()
        self.ticks: deque[Tick] = deque(maxlen=TICKS_KEPT)
        self.transactions = 0
        self.alerts = 0
        self._before = (0, 0)
        self._ages_ms: deque[float] = deque(maxlen=AGES_MOST)

    def judged(self, transaction: Transaction, raised: Sequence[Alert]) -> None:
        """A transaction has been looked at."""
        self.transactions += 1
        self.alerts += len(raised)
        age = dt.datetime.now(dt.UTC) - transaction.committed_at
        self._ages_ms.append(age / dt.timedelta(milliseconds=1))
        for alert in raised:
            self.feed.put(Beat(alert=alert))

    def tick(self, now: dt.datetime, seconds: float) -> Tick:
        """The end of a second, or of as many as have passed."""
        ages = sorted(self._ages_ms)
        self._ages_ms.clear()
        before, self._before = self._before, (self.transactions, self.alerts)
        tick = Tick(
            at=now,
            transactions=(self.transactions - before[0]) / seconds,
            alerts=(self.alerts - before[1]) / seconds,
            p50_ms=round(ages[len(ages) // 2], 1) if ages else None,
            p99_ms=round(ages[len(ages) * 99 // 100], 1) if ages else None,
        )
        self.ticks.append(tick)
        self.feed.put(Beat(tick=tick))
        return tick

    @contextlib.asynccontextmanager
    async def running(self, app: App) -> AsyncIterator[Any]:
        """Ticks as long as the app runs."""

        async def beat() -> None:
            loop = asyncio.get_running_loop()
            last = loop.time()
            while True:
                await asyncio.sleep(TICK_S)
                now = loop.time()
                self.tick(dt.datetime.now(dt.UTC), now - last)
                last = now

        async with asyncio.TaskGroup() as group:
            beating = group.create_task(beat())
            yield self
            beating.cancel()
