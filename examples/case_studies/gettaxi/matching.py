"""The rules by which a ride goes from state to state.

Here: pure functions from a ride and what happened to the ride after it.
Not here: who is free and close (`drivers`), in which order things are decided (`city`), topics and tables (`service`).
"""

import datetime as dt
from dataclasses import replace
from typing import Final

from gettaxi import geo
from gettaxi.drivers import Drivers
from gettaxi.events import Ask, Command, Phase, Position, Ride, RiderPosition, Status

WAITS_AT_MOST: Final = dt.timedelta(minutes=5)
"""After so long without a driver, in event time, a request expires."""
AHEAD_AT_MOST: Final = dt.timedelta(seconds=60)
"""A device whose clock is further ahead would make everybody else look silent."""
OPEN: Final = frozenset({Status.WAITING, Status.MATCHED, Status.ON_RIDE})
BUSY: Final = frozenset({Status.MATCHED, Status.ON_RIDE})


class Impossible(ValueError):
    """An event that cannot be meant; names the field and what it should be."""


def check_position(position: Position | None, *, key: str | None, recorded_at: dt.datetime) -> Position:
    """The position, if it can be meant.

    Raises:
        Impossible: a field is missing, or the device's clock is ahead.
        OffTheMap: the place is outside the city.
    """
    if position is None:
        raise Impossible("the value is missing; positions are never deleted")
    _check_city(position.city, key)
    if not position.driver_id:
        raise Impossible("driver_id is empty; a position names whose it is")
    if (position.phase is Phase.FREE) != (position.ride_id is None):
        raise Impossible(f"ride_id is {position.ride_id!r} in phase {position.phase.value}; it is given unless FREE")
    _check_time(position.at, recorded_at)
    geo.check(position.city, position.lat, position.lng)
    return position


def check_rider_position(position: RiderPosition | None, *, key: str | None, recorded_at: dt.datetime) -> RiderPosition:
    """The position, if it can be meant.

    Raises:
        Impossible: a field is missing, or the device's clock is ahead.
        OffTheMap: the place is outside the city.
    """
    if position is None:
        raise Impossible("the value is missing; positions are never deleted")
    _check_city(position.city, key)
    if not position.rider_id:
        raise Impossible("rider_id is empty; a position names whose it is")
    if not position.ride_id:
        raise Impossible("ride_id is empty; a rider tells positions of a ride")
    _check_time(position.at, recorded_at)
    geo.check(position.city, position.lat, position.lng)
    return position


def check_command(command: Command | None, *, key: str | None, recorded_at: dt.datetime) -> Command:
    """The command, if it can be meant.

    Raises:
        Impossible: a field is missing, or the device's clock is ahead.
        OffTheMap: the place is outside the city.
    """
    if command is None:
        raise Impossible("the value is missing; commands are never deleted")
    _check_city(command.city, key)
    if not command.ride_id:
        raise Impossible("ride_id is empty; the rider's device chooses one")
    _check_time(command.at, recorded_at)
    if command.ask is Ask.REQUESTED:
        if not command.rider_id:
            raise Impossible("rider_id is missing; a request names who wants the ride")
        if command.lat is None or command.lng is None:
            raise Impossible("lat and lng are missing; a request says where the rider waits")
        geo.check(command.city, command.lat, command.lng)
    if command.ask is Ask.DECLINED and not command.driver_id:
        raise Impossible("driver_id is missing; a driver declines, so it is named")
    return command


def _check_city(city: str, key: str | None) -> None:
    if city not in geo.CITIES:
        raise geo.OffTheMap(f"city is {city!r}; rides are in {', '.join(sorted(geo.CITIES))}")
    if key != city:
        raise Impossible(f"the record's key is {key!r}; it is the city, {city!r}, so that a city has one dispatcher")


def _check_time(at: dt.datetime, recorded_at: dt.datetime) -> None:
    if at - recorded_at > AHEAD_AT_MOST:
        raise Impossible(f"at is {at.isoformat()}, {at - recorded_at} ahead of the record; set the device's clock")


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
    closest = drivers.closest(ride.lat, ride.lng, but=ride.declined)
    if closest is None:
        return ride
    return replace(ride, status=Status.MATCHED, driver_id=closest[0], matched_at=drivers.now)


def obey(ride: Ride, command: Command, offset: int) -> Ride:
    """The ride after a rider cancelled it or a driver declined it; as it was where that comes too late or is known already."""
    if offset <= ride.last_command_offset:
        return ride
    if command.ask is Ask.CANCELLED and ride.status in {Status.WAITING, Status.MATCHED}:
        return replace(ride, last_command_offset=offset, status=Status.CANCELLED, driver_id=None)
    if command.ask is Ask.DECLINED and ride.status is Status.MATCHED and ride.driver_id == command.driver_id:
        return replace(give_back(ride), last_command_offset=offset)
    return ride


def give_back(ride: Ride) -> Ride:
    """The ride waits again, for anybody but the driver that it had."""
    assert ride.driver_id is not None
    return replace(
        ride, status=Status.WAITING, driver_id=None, matched_at=None, declined=[*ride.declined, ride.driver_id]
    )


def expire(ride: Ride, now: dt.datetime) -> Ride:
    """The ride, given up if no driver came for it in time."""
    if ride.status is Status.WAITING and now - ride.requested_at > WAITS_AT_MOST:
        return replace(ride, status=Status.EXPIRED)
    return ride
