"""A city in motion: drivers on a grid of streets, riders who want to go somewhere.

Here: what devices report, pure and the same for a seed as long as the same comes in at the same steps.
Not here: sending (`generate`), matching: drivers learn whom they drive from the topic of the rides, like a device
would.
"""

import datetime as dt
import math
import random
from dataclasses import dataclass, field
from typing import Final

from gettaxi import geo
from gettaxi.events import Ask, Command, Phase, Position, Ride, RiderPosition, Status

BLOCK_M: Final = 250.0
SPEED_M_S: Final = 14.0
SHORTEST_M: Final = 500.0
_DECLINES: Final = 0.05
_CANCELS: Final = 0.06
_FROM_HOT_SPOT: Final = 0.3
_INSIDE: Final = frozenset({Phase.PICKED_UP, Phase.ON_RIDE, Phase.DROPPED_OFF})
_FINAL: Final = frozenset({Status.ENDED, Status.CANCELLED, Status.EXPIRED})
Point = tuple[float, float]
"""Metres east and north of the centre."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What goes on in a city.

    Attributes:
        city: where.
        drivers: how many; each reports once a step.
        rides_per_minute: requests, as a Poisson process.
        seed: of everything.
        start: event time of the first step.
        half_m: streets go so far from the centre, to each side; two blocks at least.
        longest_m: of a ride.
    """

    city: str
    drivers: int
    rides_per_minute: float
    seed: int
    start: dt.datetime
    half_m: float = 4000.0
    longest_m: float = 2500.0


@dataclass(slots=True)
class _Car:
    driver_id: str
    at: Point
    delay: dt.timedelta
    path: list[Point] = field(default_factory=list)
    phase: Phase = Phase.FREE
    ride_id: str | None = None
    next: tuple[str, Point] | None = None


class Traffic:
    """The devices of one city; `step` is one second of it."""

    STEP: Final = dt.timedelta(seconds=1)

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.now = plan.start
        self.requests = True
        """Whether riders still come."""
        self.dropped_off: set[str] = set()
        """Rides whose rider got out."""
        self.rides: dict[str, Status] = {}
        """Every ride that was asked for, with what its device knows of it."""
        self._random = random.Random(f"{plan.seed} {plan.city}")  # noqa: S311 - traffic, the same for a seed
        self._car_of: dict[str, _Car] = {}
        self._riders: dict[str, tuple[str, Point]] = {}
        """Of each ride that is not over: whose it is, and where it was asked for."""
        self._to: dict[str, Point] = {}
        self._cancels_at: dict[str, dt.datetime] = {}
        self._declining: list[tuple[str, str]] = []
        self._half = max(plan.half_m // BLOCK_M, 2) * BLOCK_M
        self._place = geo.CITIES[plan.city]
        self._hot = self._corner((0.0, 0.0), self._half / 2)
        self._next_request = self._gap()
        self._cars = {
            car.driver_id: car
            for car in (
                _Car(
                    f"{plan.city}-{number:04}",
                    self._corner(),
                    dt.timedelta(microseconds=self._random.randrange(900_000)),
                )
                for number in range(plan.drivers)
            )
        }

    @property
    def open(self) -> int:
        """Rides that are not over, as far as devices know."""
        return sum(status not in _FINAL for status in self.rides.values())

    def on_ride(self, ride: Ride) -> None:
        """A ride's newest record came to the devices."""
        if self.rides.get(ride.ride_id) in {None, *_FINAL}:
            return
        self.rides[ride.ride_id] = ride.status
        car = self._car_of.get(ride.ride_id)
        if car is not None and (car.driver_id != ride.driver_id or ride.status in _FINAL):
            self._let_go(car, ride.ride_id)
        car = self._cars.get(ride.driver_id or "")
        if ride.status is not Status.MATCHED or car is None or self._car_of.get(ride.ride_id) is car:
            return
        chance = random.Random(f"{ride.ride_id} {car.driver_id}").random()  # noqa: S311 - as above
        if chance < _DECLINES:
            self._declining.append((ride.ride_id, car.driver_id))
            return
        self._car_of[ride.ride_id] = car
        car.next = ride.ride_id, self._point(ride.lat, ride.lng)
        if car.phase is Phase.FREE:
            self._set_off(car)

    def _let_go(self, car: _Car, ride_id: str) -> None:
        """A driver drives this ride no more; one who has dropped the rider off has ended it already."""
        del self._car_of[ride_id]
        if car.next is not None and car.next[0] == ride_id:
            car.next = None
        if car.ride_id == ride_id and car.phase is not Phase.DROPPED_OFF:
            car.phase, car.ride_id, car.path = Phase.FREE, None, car.path[:1]

    def _set_off(self, car: _Car) -> None:
        """To the next rider, if there is one."""
        car.phase, car.ride_id = Phase.FREE, None
        if car.next is not None:
            car.phase, car.ride_id, to = Phase.TO_PICKUP, *car.next
            car.next, car.path = None, self._way(car, to)

    def step(self) -> tuple[list[Position], list[Command]]:
        """What the devices send in the next second."""
        self.now += self.STEP
        if self._random.random() < self.STEP / dt.timedelta(minutes=2):
            self._hot = self._corner((0.0, 0.0), self._half / 2)
        commands = [self._declines(*declined) for declined in self._declining]
        self._declining.clear()
        commands += [*self._cancellations(), *self._requests()]
        return [self._move(car) for car in self._cars.values()], commands

    # Riders

    def riders(self) -> list[RiderPosition]:
        """Where the devices of riders say they are, in the second of the last `step`: waiting where they asked, or in the car, to its stop."""
        positions = []
        for ride_id, (rider_id, start) in list(self._riders.items()):
            car = self._car_of.get(ride_id)
            inside = car is not None and car.ride_id == ride_id and car.phase in _INSIDE
            if not inside and (self.rides[ride_id] in _FINAL or ride_id in self.dropped_off):
                del self._riders[ride_id]
                continue
            lat, lng = self._degrees(car.at if inside and car is not None else start)
            positions.append(
                RiderPosition(rider_id=rider_id, ride_id=ride_id, city=self.plan.city, lat=lat, lng=lng, at=self.now)
            )
        return positions

    def _gap(self) -> dt.datetime:
        return self.now + dt.timedelta(minutes=self._random.expovariate(self.plan.rides_per_minute))

    def _requests(self) -> list[Command]:
        requests = []
        while self._next_request <= self.now:
            self._next_request = max(self._next_request, self.now - self.STEP)
            at = self._next_request
            self._next_request += dt.timedelta(minutes=self._random.expovariate(self.plan.rides_per_minute))
            if not self.requests:
                continue
            ride_id = f"{self.plan.city}-{self.plan.seed}-{len(self.rides):06}"
            start = self._corner(self._hot if self._random.random() < _FROM_HOT_SPOT else None)
            self._to[ride_id] = self._corner(start, self.plan.longest_m / 2)
            while _away(start, self._to[ride_id]) < SHORTEST_M:
                self._to[ride_id] = self._corner(start, self.plan.longest_m / 2)
            lat, lng = self._degrees(start)
            self.rides[ride_id] = Status.WAITING
            if self._random.random() < _CANCELS:
                self._cancels_at[ride_id] = at + dt.timedelta(seconds=self._random.uniform(5, 40))
            rider_id = f"rider-{self._random.randrange(10_000):04}"
            self._riders[ride_id] = rider_id, start
            requests.append(
                Command(
                    ask=Ask.REQUESTED,
                    ride_id=ride_id,
                    city=self.plan.city,
                    at=at,
                    rider_id=rider_id,
                    lat=lat,
                    lng=lng,
                )
            )
        return requests

    def _cancellations(self) -> list[Command]:
        due = [ride_id for ride_id, at in self._cancels_at.items() if at <= self.now]
        for ride_id in due:
            del self._cancels_at[ride_id]
        return [
            Command(ask=Ask.CANCELLED, ride_id=ride_id, city=self.plan.city, at=self.now)
            for ride_id in due
            if self.rides[ride_id] in {Status.WAITING, Status.MATCHED}
        ]

    # Drivers

    def _declines(self, ride_id: str, driver_id: str) -> Command:
        return Command(ask=Ask.DECLINED, ride_id=ride_id, city=self.plan.city, at=self.now, driver_id=driver_id)

    def _move(self, car: _Car) -> Position:
        if car.phase is Phase.DROPPED_OFF:
            self._set_off(car)
        elif car.phase is Phase.PICKED_UP:
            car.phase = Phase.ON_RIDE
        left = SPEED_M_S * self._random.uniform(0.6, 1.2) * self.STEP.total_seconds()
        while left > 0:
            if not car.path:
                if car.phase is not Phase.FREE:
                    break
                car.path = [self._next_corner(car.at)]
            to = car.path[0]
            away = _away(car.at, to)
            if away <= left:
                car.at = car.path.pop(0)
                left -= away
            else:
                part = left / away
                car.at = (car.at[0] + (to[0] - car.at[0]) * part, car.at[1] + (to[1] - car.at[1]) * part)
                left = 0
        if not car.path and car.ride_id is not None:
            if car.phase is Phase.TO_PICKUP:
                car.phase, car.path = Phase.PICKED_UP, self._way(car, self._to[car.ride_id])
            elif car.phase is Phase.ON_RIDE:
                car.phase = Phase.DROPPED_OFF
                self.dropped_off.add(car.ride_id)
        lat, lng = self._degrees(car.at)
        return Position(
            driver_id=car.driver_id,
            city=self.plan.city,
            lat=lat,
            lng=lng,
            at=self.now - car.delay,
            phase=car.phase,
            ride_id=car.ride_id,
        )

    def _way(self, car: _Car, to: Point) -> list[Point]:
        """To the next corner, then along one street and along another."""
        start = car.path[0] if car.path else car.at
        turn = (to[0], start[1]) if self._random.random() < 0.5 else (start[0], to[1])
        return [start, turn, to]

    def _next_corner(self, at: Point) -> Point:
        x, y = _snap(at[0]), _snap(at[1])
        corners = [
            (x + east, y + north)
            for east, north in ((BLOCK_M, 0.0), (-BLOCK_M, 0.0), (0.0, BLOCK_M), (0.0, -BLOCK_M))
            if max(abs(x + east), abs(y + north)) <= self._half
        ]
        return self._random.choice(corners)

    def _corner(self, near: Point | None = None, spread_m: float = 1000.0) -> Point:
        """A corner anywhere, or one near a place."""
        half = self._half
        if near is None:
            return _snap(self._random.uniform(-half, half)), _snap(self._random.uniform(-half, half))
        x, y = (min(max(self._random.gauss(centre, spread_m), -half), half) for centre in near)
        return _snap(x), _snap(y)

    # Degrees

    def _degrees(self, at: Point) -> tuple[float, float]:
        per_degree = geo.EARTH_RADIUS_MM / 1000 * math.pi / 180
        lat = self._place.lat + at[1] / per_degree
        return lat, self._place.lng + at[0] / (per_degree * math.cos(math.radians(self._place.lat)))

    def _point(self, lat: float, lng: float) -> Point:
        per_degree = geo.EARTH_RADIUS_MM / 1000 * math.pi / 180
        x = (lng - self._place.lng) * per_degree * math.cos(math.radians(self._place.lat))
        return _snap(x), _snap((lat - self._place.lat) * per_degree)


def _snap(metres: float) -> float:
    return round(metres / BLOCK_M) * BLOCK_M


def _away(point: Point, other: Point) -> float:
    return abs(point[0] - other[0]) + abs(point[1] - other[1])
