"""A city's dispatcher: what follows from positions and commands, in which order.

Here: who waits, who is silent, which ride is decided next; the windows of the price.
Not here: the rules for one ride (`matching`), the search (`drivers`), what is stored (`service`).

Nothing here remembers a decision: rides come in with `follow`, as the table has them. The methods that decide are generators that
yield a changed ride and expect that the city knows it when they go on, so no decision is made on what is not kept.
"""

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from gettaxi import fares, geo, matching
from gettaxi.drivers import UNSEEN_AFTER, Drivers
from gettaxi.events import Command, Phase, Position, Ride, Status
from gettaxi.surge import LATENESS, Closed, Windows

WAITING_MOST: Final = 2000
"""So many riders of a city wait at once; a further request is given up at once."""
KEPT_FOR: Final = dt.timedelta(hours=24)
"""After so long the row of a ride that is over goes; its record is in the analytics store by then."""


class City:
    """The dispatcher of one city, in memory.

    Args:
        name: of the city.
        rides: those of this city that the table has.
    """

    def __init__(self, name: str, rides: Iterable[Ride] = ()) -> None:
        self.name = name
        self.drivers = Drivers()
        self.windows: Windows | None = None
        self.waiting: dict[str, Ride] = {}
        self.matched: dict[str, Ride] = {}
        self.over: dict[str, Ride] = {}
        self.on_ride: set[str] = set()
        self._heard: dict[str, dt.datetime] = {}
        """When the driver of a matched ride was last seen on the way to its rider."""
        self.positions = 0
        self.ended = self.fares_cents = self.distance_mm = 0
        """Of the rides that are over and not forgotten."""
        self._since: dt.datetime | None = None
        self._begun_with: list[Ride] = []
        for ride in rides:
            self.follow(ride.ride_id, ride)

    # What is taken in

    def follow(self, ride_id: str, ride: Ride | None) -> None:
        """A ride as the table has it; None when its row has gone."""
        known = any(ride_id in kept for kept in (self.waiting, self.matched, self.on_ride, self.over))
        if (before := self.over.pop(ride_id, None)) is not None:
            self._count(before, -1)
        self.waiting.pop(ride_id, None)
        if self.matched.pop(ride_id, None) is not None:
            self._heard.pop(ride_id, None)
        self.on_ride.discard(ride_id)
        self.drivers.follow(ride_id, ride.driver_id if ride is not None and ride.status in matching.BUSY else None)
        if ride is None:
            return
        if ride.status is Status.ON_RIDE:
            self.on_ride.add(ride_id)
        else:
            kept = {Status.WAITING: self.waiting, Status.MATCHED: self.matched}.get(ride.status, self.over)
            kept[ride_id] = ride
            if kept is self.over:
                self._count(ride, 1)
        if not known:
            self._demand(ride)

    def _demand(self, ride: Ride) -> None:
        if self.windows is None:
            self._begun_with.append(ride)
        else:
            self.windows.demand(geo.surge_cell(ride.lat, ride.lng), ride.requested_at, ride.ride_id)

    def _count(self, ride: Ride, by: int) -> None:
        if ride.status is Status.ENDED:
            self.ended += by
            self.fares_cents += by * (ride.fare_cents or 0)
            self.distance_mm += by * ride.meter.distance_mm

    def see(self, position: Position) -> None:
        """Where a driver is now."""
        self.positions += 1
        if self.windows is None:
            self._since = position.at
            # What was stored before this one and happened after it was taken in by the instance before.
            self.windows = Windows(position.at + LATENESS)
            for ride in self._begun_with:
                self._demand(ride)
            self._begun_with.clear()
        self.drivers.see(position)
        if position.ride_id in self.matched:
            self._heard[position.ride_id] = position.at
        if position.phase is Phase.FREE:
            self.windows.supply(geo.surge_cell(position.lat, position.lng), position.at, position.driver_id)

    # What is decided

    def request(self, command: Command, offset: int, *, surge_percent: int) -> Ride:
        """The ride that a request begins, with its driver if one is free and near."""
        ride = matching.match(matching.request(command, offset, surge_percent=surge_percent), self.drivers)
        if ride.status is Status.WAITING and len(self.waiting) >= WAITING_MOST:
            return replace(ride, status=Status.EXPIRED)
        return ride

    def assign(self) -> Iterator[Ride]:
        """Matches for those who wait, the one who waits longest first."""
        for ride in sorted(self.waiting.values(), key=lambda ride: (ride.requested_at, ride.ride_id)):
            if not self.drivers.idle:
                return
            after = matching.match(ride, self.drivers)
            if after is not ride:
                yield after

    def give_up(self) -> Iterator[Ride]:
        """Rides that waited too long, and those whose driver is not seen on the way to the rider."""
        now = self.drivers.now
        if now is None or self._since is None:
            return
        for ride in list(self.waiting.values()):
            after = matching.expire(ride, now)
            if after is not ride:
                yield after
        for ride in list(self.matched.values()):
            last = max(self._since, ride.matched_at or self._since, self._heard.get(ride.ride_id, self._since))
            if now - last > UNSEEN_AFTER:
                yield matching.give_back(ride)

    def pass_time(self) -> tuple[dt.datetime, list[Closed]] | None:
        """The end of the newest window that is complete, and what the windows came to that are complete only now; None when there is none
        of those."""
        if self.windows is None or self.drivers.now is None:
            return None
        before = self.windows.complete_until
        closed = self.windows.pass_time(self.drivers.now)
        if self.windows.complete_until == before:
            return None
        self.drivers.forget()
        return self.windows.complete_until, closed

    def to_forget(self) -> list[str]:
        """Rides that are over for so long that their row goes."""
        now = self.drivers.now
        if now is None:
            return []
        return [
            ride_id for ride_id, ride in self.over.items() if now - (ride.meter.last_at or ride.requested_at) > KEPT_FOR
        ]


def drive(rides: "dict[str, Ride]", ride: Ride | None, position: Position, offset: int) -> None:
    """Take a position into the ride it is for, and keep the ride in `rides` if that changed it."""
    if ride is not None and (after := fares.drive(ride, position, offset)) is not ride:
        rides[ride.ride_id] = after
