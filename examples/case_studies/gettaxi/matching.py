"""Who drives whom.

What lives here: the free drivers of a city and the search for the closest one; the rules by which a ride goes from state to state. What
does not: topics, tables, time.

Closest is by distance. H3 rings bound the search: who is in ring k is at least `(k - 1)` ring widths away, so the search ends at the first
ring that cannot hold anyone closer than the best so far.
"""

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import h3

from gettaxi import geo
from gettaxi.events import Ask, Command, Position, Ride, Status

UNSEEN_AFTER: Final = dt.timedelta(seconds=60)
"""Who has not reported for so long, in event time, is not offered a ride."""
WAITS_AT_MOST: Final = dt.timedelta(minutes=5)
"""After so long without a driver a request expires."""
RINGS_MOST: Final = 12
"""How far a driver may be: 12 rings are about 10 km."""
_RING_MM: Final = 600_000
"""Rings are at least this far apart: 0.87 of a cell's inner width, which at this resolution is nowhere below 0.7 km."""

OPEN: Final = frozenset({Status.WAITING, Status.MATCHED, Status.ON_RIDE})
_BUSY: Final = frozenset({Status.MATCHED, Status.ON_RIDE})


class Impossible(ValueError):
    """A command that nobody can mean; names the field."""


@dataclass(slots=True)
class _Driver:
    lat: float
    lng: float
    at: dt.datetime
    cell: str


@dataclass(slots=True)
class Drivers:
    """The drivers of a city: where each was seen last, and who is free."""

    _seen: dict[str, _Driver] = field(default_factory=dict)
    _by_cell: dict[str, set[str]] = field(default_factory=dict)
    _busy: dict[str, str] = field(default_factory=dict)
    _driver_of: dict[str, str] = field(default_factory=dict)
    now: dt.datetime | None = None
    """The newest event time seen."""

    def see(self, position: Position) -> bool:
        """Take a position in; false if it is older than what is known of this driver."""
        before = self._seen.get(position.driver_id)
        if before is not None and position.at <= before.at:
            return False
        cell = geo.search_cell(position.lat, position.lng)
        if before is not None and before.cell != cell:
            self._leave(position.driver_id, before.cell)
        self._seen[position.driver_id] = _Driver(position.lat, position.lng, position.at, cell)
        self._by_cell.setdefault(cell, set()).add(position.driver_id)
        if self.now is None or position.at > self.now:
            self.now = position.at
        return True

    def _leave(self, driver_id: str, cell: str) -> None:
        there = self._by_cell[cell]
        there.discard(driver_id)
        if not there:
            del self._by_cell[cell]

    def follow(self, ride: Ride) -> None:
        """Keep in mind who is busy, by a ride's newest state."""
        if (before := self._driver_of.pop(ride.ride_id, None)) is not None:
            del self._busy[before]
        if ride.status in _BUSY:
            assert ride.driver_id is not None
            assert ride.driver_id not in self._busy, (
                f"{ride.driver_id} would drive {ride.ride_id} and {self._busy[ride.driver_id]}"
            )
            self._busy[ride.driver_id] = ride.ride_id
            self._driver_of[ride.ride_id] = ride.driver_id

    def ride_of(self, driver_id: str) -> str | None:
        """The ride that a driver is matched with."""
        return self._busy.get(driver_id)

    def is_free(self, driver_id: str) -> bool:
        """Whether a driver was seen of late and has no ride."""
        seen = self._seen.get(driver_id)
        return (
            seen is not None
            and driver_id not in self._busy
            and self.now is not None
            and self.now - seen.at <= UNSEEN_AFTER
        )

    def closest(self, lat: float, lng: float, *, but: Iterable[str] = ()) -> tuple[str, int] | None:
        """The closest free driver and the distance in millimetres; of two equally close, the one whose id sorts first."""
        refused = set(but)
        best: tuple[int, str] | None = None
        for ring, cells in enumerate(self._rings(lat, lng)):
            if best is not None and best[0] <= (ring - 1) * _RING_MM:
                break
            for cell in cells:
                for driver_id in self._by_cell.get(cell, ()):
                    if driver_id in refused or not self.is_free(driver_id):
                        continue
                    seen = self._seen[driver_id]
                    found = (geo.distance_mm(lat, lng, seen.lat, seen.lng), driver_id)
                    if best is None or found < best:
                        best = found
        return None if best is None else (best[1], best[0])

    def _rings(self, lat: float, lng: float) -> Iterator[list[str]]:
        centre = geo.search_cell(lat, lng)
        for ring in range(RINGS_MOST + 1):
            yield h3.grid_ring(centre, ring)

    def free(self) -> Iterator[tuple[str, float, float]]:
        """Every free driver with the place."""
        for driver_id, seen in self._seen.items():
            if self.is_free(driver_id):
                yield driver_id, seen.lat, seen.lng


def check(command: Command) -> None:
    """Whether a command can be meant.

    Raises:
        Impossible: a field is missing.
        OffTheMap: the place is outside the city.
    """
    if not command.ride_id:
        raise Impossible("ride_id is empty; the rider's device chooses one")
    if command.ask is Ask.REQUESTED:
        if not command.rider_id:
            raise Impossible("rider_id is missing; a request names who wants the ride")
        if command.lat is None or command.lng is None:
            raise Impossible("lat and lng are missing; a request says where the rider waits")
        geo.check(command.city, command.lat, command.lng)
    elif command.city not in geo.CITIES:
        raise geo.OffTheMap(f"city is {command.city!r}; rides are in {', '.join(sorted(geo.CITIES))}")
    if command.ask is Ask.DECLINED and not command.driver_id:
        raise Impossible("driver_id is missing; a driver declines, so it is named")


def request(command: Command, offset: int, *, surge_percent: int) -> Ride:
    """The ride that a request begins, still without a driver."""
    assert command.lat is not None
    assert command.lng is not None
    assert command.rider_id is not None
    return Ride(
        ride_id=command.ride_id,
        city=command.city,
        rider_id=command.rider_id,
        status=Status.WAITING,
        lat=command.lat,
        lng=command.lng,
        requested_at=command.at,
        surge_percent=surge_percent,
        last_command_offset=offset,
    )


def match(ride: Ride, drivers: Drivers) -> Ride:
    """The ride with its driver, if one is near and free; else as it was."""
    if ride.status is not Status.WAITING:
        return ride
    found = drivers.closest(ride.lat, ride.lng, but=ride.declined)
    if found is None:
        return ride
    return replace(ride, status=Status.MATCHED, driver_id=found[0], matched_at=drivers.now)


def obey(ride: Ride, command: Command, offset: int) -> Ride:
    """The ride after a rider cancelled it or a driver declined it; as it was where that comes too late or says nothing new."""
    if offset <= ride.last_command_offset:
        return ride
    ride = replace(ride, last_command_offset=offset)
    if command.ask is Ask.CANCELLED and ride.status in {Status.WAITING, Status.MATCHED}:
        return replace(ride, status=Status.CANCELLED, driver_id=None)
    if command.ask is Ask.DECLINED and ride.status is Status.MATCHED and ride.driver_id == command.driver_id:
        assert command.driver_id is not None
        return replace(
            ride, status=Status.WAITING, driver_id=None, matched_at=None, declined=[*ride.declined, command.driver_id]
        )
    return ride


def expire(ride: Ride, now: dt.datetime) -> Ride:
    """The ride, given up if nobody came for it in time."""
    if ride.status is Status.WAITING and now - ride.requested_at > WAITS_AT_MOST:
        return replace(ride, status=Status.EXPIRED)
    return ride
