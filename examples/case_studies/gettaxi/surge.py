"""When prices rise: supply and demand for each cell, in sliding windows of event time.

Here: the windows and the price rule, pure.
Not here: publishing them (`service`), the same windows in Spark (`jobs.surge`).

A window is `[start, start + WINDOW)`, one starts every `SLIDE`. It is complete when the watermark, the newest event time less
`LATENESS`, has passed its end; what comes later for it is counted as late and changes nothing, as in Spark.
"""

import datetime as dt
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


def windows(at: dt.datetime) -> list[dt.datetime]:
    """The starts of the windows that an event belongs to, oldest first."""
    last = at - (at - _EPOCH) % SLIDE
    return [last - number * SLIDE for number in reversed(range(WINDOW // SLIDE))]


@dataclass(slots=True)
class _Cell:
    rides: set[str] = field(default_factory=set)
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


class Windows:
    """The windows of a city that are open.

    Events are kept once for each slide, as a window is a row of them; rides and drivers are kept by name, so one that comes twice counts once.

    Args:
        since: windows that begin before it are not published: part of what happened in them was not seen.
    """

    def __init__(self, since: dt.datetime) -> None:
        self.since = since
        self.watermark: dt.datetime | None = None
        self.late = 0
        """Events that came after each of their windows was complete."""
        self._slides: dict[dt.datetime, dict[str, _Cell]] = {}
        first = windows(since)[-1]
        self._next = first if first == since else first + SLIDE

    @property
    def complete_until(self) -> dt.datetime:
        """The end of the newest window that is complete."""
        return self._next - SLIDE + WINDOW

    def demand(self, cell: str, at: dt.datetime, ride_id: str) -> None:
        """A ride was requested."""
        if (cell_window := self._cell(cell, at)) is not None:
            cell_window.rides.add(ride_id)

    def supply(self, cell: str, at: dt.datetime, driver_id: str) -> None:
        """A driver was free."""
        if (cell_window := self._cell(cell, at)) is not None:
            cell_window.drivers.add(driver_id)

    def _cell(self, cell: str, at: dt.datetime) -> _Cell | None:
        slide = at - (at - _EPOCH) % SLIDE
        if slide < self._next:
            # Windows that hold it begin with its slide or before.
            self.late += self.watermark is not None and slide + WINDOW <= self.watermark
            return None
        return self._slides.setdefault(slide, {}).setdefault(cell, _Cell())

    def pass_time(self, now: dt.datetime) -> list[Closed]:
        """Event time has come to `now`; the windows that are complete by that, oldest first, cells in order of their names."""
        watermark = now - LATENESS
        if self.watermark is not None and watermark <= self.watermark:
            return []
        self.watermark = watermark
        closed: list[Closed] = []
        while self._next + WINDOW <= watermark:
            if not self._slides:
                self._next = max(self._next, windows(watermark)[0])
                break
            closed += self._close(self._next)
            self._next += SLIDE
            for gone in [slide for slide in self._slides if slide < self._next]:
                del self._slides[gone]
        return closed

    def _close(self, start: dt.datetime) -> list[Closed]:
        cells: dict[str, _Cell] = {}
        for number in range(WINDOW // SLIDE):
            for cell, cell_window in self._slides.get(start + number * SLIDE, {}).items():
                whole = cells.setdefault(cell, _Cell())
                whole.rides |= cell_window.rides
                whole.drivers |= cell_window.drivers
        return [
            Closed(cell=cell, start=start, demand=len(cell_window.rides), supply=len(cell_window.drivers))
            for cell, cell_window in sorted(cells.items())
        ]
