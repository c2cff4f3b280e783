"""Who is where, and who is free.

Here: the drivers of one city in memory, and the search for the closest free one.
Not here: what rides are (`matching`), what is stored (`service`): places are only as old as the last report, so they
are not.

Closest is by distance. H3 rings bound the search: who is in ring k is at least `k - 1` ring widths away, so the search ends at the first
ring that cannot hold anyone closer than the best so far.
"""

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gettaxi import geo
from gettaxi.events import Position

UNSEEN_AFTER: Final = dt.timedelta(seconds=60)
"""Who has not reported for so long, in event time, is not offered a ride."""
FORGOTTEN_AFTER: Final = dt.timedelta(minutes=30)
"""After so long a driver's last place is let go."""
RINGS_MOST: Final = 12
"""How far a driver may be: 12 rings are about 10 km."""
FEW: Final = 16
"""So few free drivers are all looked at, which costs less than rings."""
_RING_MM: Final = 600_000
"""Rings are at least this far apart: 0.87 of a cell's inner width, which at this resolution is nowhere below 0.7 km."""
_RINGS_KEPT: Final = 8192


@dataclass(slots=True)
class Seen:
    """A driver's newest report."""

    lat: float
    lng: float
    at: dt.datetime
    cell: str


class Drivers:
    """The drivers of a city."""

    def __init__(self) -> None:
        self.now: dt.datetime | None = None
        """The newest event time seen."""
        self.seen: dict[str, Seen] = {}
        self._rides_of: dict[str, set[str]] = {}
        self._driver_of: dict[str, str] = {}
        self._idle: dict[str, set[str]] = {}
        """By cell, those that were seen and have no ride."""
        self.idle = 0

    def see(self, position: Position) -> bool:
        """Take a position in; false if it is not newer than what is known of this driver."""
        driver_id, at = position.driver_id, position.at
        before = self.seen.get(driver_id)
        if before is not None and at <= before.at:
            return False
        cell = geo.search_cell(position.lat, position.lng)
        idle = driver_id not in self._rides_of
        if before is None:
            self.seen[driver_id] = Seen(position.lat, position.lng, at, cell)
            if idle:
                self._enter(driver_id, cell)
        else:
            if idle and before.cell != cell:
                self._leave(driver_id, before.cell)
                self._enter(driver_id, cell)
            before.lat, before.lng, before.at, before.cell = position.lat, position.lng, at, cell
        if self.now is None or at > self.now:
            self.now = at
        return True

    def follow(self, ride_id: str, driver_id: str | None) -> None:
        """A ride's driver, by its newest state; None when no driver has it any more, or not yet."""
        before = self._driver_of.pop(ride_id, None)
        if before is not None and before != driver_id:
            rides = self._rides_of[before]
            rides.discard(ride_id)
            if not rides:
                del self._rides_of[before]
                if (seen := self.seen.get(before)) is not None:
                    self._enter(before, seen.cell)
        if driver_id is None:
            return
        self._driver_of[ride_id] = driver_id
        if driver_id not in self._rides_of and (seen := self.seen.get(driver_id)) is not None:
            self._leave(driver_id, seen.cell)
        self._rides_of.setdefault(driver_id, set()).add(ride_id)

    def forget(self) -> None:
        """Let go of those that were not seen for `FORGOTTEN_AFTER`."""
        assert self.now is not None
        for driver_id in [driver_id for driver_id, seen in self.seen.items() if self.now - seen.at > FORGOTTEN_AFTER]:
            seen = self.seen.pop(driver_id)
            if driver_id not in self._rides_of:
                self._leave(driver_id, seen.cell)

    def _enter(self, driver_id: str, cell: str) -> None:
        self._idle.setdefault(cell, set()).add(driver_id)
        self.idle += 1

    def _leave(self, driver_id: str, cell: str) -> None:
        there = self._idle[cell]
        there.remove(driver_id)
        self.idle -= 1
        if not there:
            del self._idle[cell]

    def rides_of(self, driver_id: str) -> frozenset[str]:
        """The rides that name a driver: one at most."""
        return frozenset(self._rides_of.get(driver_id, ()))

    def is_free(self, driver_id: str) -> bool:
        """Whether a driver was seen of late and has no ride."""
        seen = self.seen.get(driver_id)
        return seen is not None and driver_id not in self._rides_of and self._is_fresh(seen)

    def _is_fresh(self, seen: Seen) -> bool:
        return self.now is not None and self.now - seen.at <= UNSEEN_AFTER

    def closest(self, lat: float, lng: float, *, but: Iterable[str] = ()) -> tuple[str, int] | None:
        """The closest free driver and the distance in millimetres; of two equally close, the one whose id sorts first."""
        if not self.idle:
            return None
        refused = frozenset(but)
        best: tuple[int, str] | None = None
        for ring, cells in enumerate(self._rings(lat, lng)):
            if best is not None and best[0] <= (ring - 1) * _RING_MM:
                break
            for cell in cells:
                for driver_id in self._idle.get(cell, ()):
                    seen = self.seen[driver_id]
                    if driver_id in refused or not self._is_fresh(seen):
                        continue
                    candidate = (geo.distance_mm(lat, lng, seen.lat, seen.lng), driver_id)
                    if best is None or candidate < best:
                        best = candidate
        return None if best is None else (best[1], best[0])

    def _rings(self, lat: float, lng: float) -> Iterator[Iterable[str]]:
        """The cells to look at, ring by ring."""
        centre = geo.search_cell(lat, lng)
        if self.idle > FEW:
            for ring in range(RINGS_MOST + 1):
                yield _ring(centre, ring)
            return
        by_ring: list[list[str]] = [[] for _ in range(RINGS_MOST + 1)]
        for cell in self._idle:
            if (away := geo.steps_between(centre, cell)) <= RINGS_MOST:
                by_ring[away].append(cell)
        yield from by_ring


@lru_cache(maxsize=_RINGS_KEPT)
def _ring(centre: str, ring: int) -> tuple[str, ...]:
    return tuple(geo.ring(centre, ring))
