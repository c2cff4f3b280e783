"""When prices rise: supply and demand for each cell, in sliding windows of event time.

What lives here: the windows and the price rule, pure. What does not: publishing them (`service`), the same windows in Spark (`jobs.surge`).

A window is `[start, start + WINDOW)`, one starts every `SLIDE`. It is complete when the watermark, the newest event time less
`LATENESS`, has passed its end; what comes later for it is counted as late and changes nothing, as in Spark.
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

WINDOW: Final = dt.timedelta(seconds=60)
SLIDE: Final = dt.timedelta(seconds=10)
LATENESS: Final = dt.timedelta(seconds=10)
PLAIN_PERCENT: Final = 100
MOST_PERCENT: Final = 300
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def percent(demand: int, supply: int) -> int:
    """What prices are multiplied by: plain while there is a driver for each request, a quarter more for each further request per driver,
    never over `MOST_PERCENT`; in steps of 10."""
    if demand <= supply:
        return PLAIN_PERCENT
    over = (demand - supply) * 25 // max(supply, 1)
    return min(PLAIN_PERCENT + over // 10 * 10, MOST_PERCENT)


def windows(at: dt.datetime) -> Iterator[dt.datetime]:
    """The starts of the windows that an event belongs to, oldest first."""
    last = at - (at - _EPOCH) % SLIDE
    start = last - WINDOW + SLIDE
    while start <= last:
        yield start
        start += SLIDE


@dataclass(slots=True)
class _Cell:
    demand: int = 0
    drivers: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """What a window came to for one cell."""

    cell: str
    start: dt.datetime
    demand: int
    supply: int

    @property
    def end(self) -> dt.datetime:
        """Where the window ends."""
        return self.start + WINDOW

    @property
    def percent(self) -> int:
        """What prices are multiplied by after it."""
        return percent(self.demand, self.supply)


@dataclass(slots=True)
class Windows:
    """The windows of a city that are open."""

    _open: dict[dt.datetime, dict[str, _Cell]] = field(default_factory=dict)
    watermark: dt.datetime | None = None
    late: int = 0
    """Events that came after each of their windows was complete."""

    def demand(self, cell: str, at: dt.datetime) -> None:
        """A ride was requested."""
        for found in self._cells(cell, at):
            found.demand += 1

    def supply(self, cell: str, at: dt.datetime, driver_id: str) -> None:
        """A driver was free; counts once for each cell and window."""
        for found in self._cells(cell, at):
            found.drivers.add(driver_id)

    def _cells(self, cell: str, at: dt.datetime) -> Iterator[_Cell]:
        counted = False
        for start in windows(at):
            if self.watermark is not None and start + WINDOW <= self.watermark:
                continue
            counted = True
            yield self._open.setdefault(start, {}).setdefault(cell, _Cell())
        self.late += not counted

    def pass_time(self, now: dt.datetime) -> list[Closed]:
        """Event time has come to `now`; the windows that are complete by that, oldest first, cells in order of their names."""
        watermark = now - LATENESS
        if self.watermark is not None and watermark <= self.watermark:
            return []
        self.watermark = watermark
        done = sorted(start for start in self._open if start + WINDOW <= watermark)
        return [
            Closed(cell=cell, start=start, demand=found.demand, supply=len(found.drivers))
            for start in done
            for cell, found in sorted(self._open.pop(start).items())
        ]
