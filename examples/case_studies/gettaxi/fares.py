"""What a ride costs: what its stored positions say, and nothing else.

Here: the meter and the price, in whole numbers, so that the service and the Spark job give the same to the cent.
Not here: where positions come from.
"""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from gettaxi import geo, matching
from gettaxi.events import Meter, Phase, Position, Ride, Status

BASE_CENTS: Final = 300
CENTS_PER_KM: Final = 150
CENTS_PER_MINUTE: Final = 30
METERED: Final = frozenset({Phase.PICKED_UP, Phase.ON_RIDE, Phase.DROPPED_OFF})
"""Positions with the rider in the car."""
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def add(meter: Meter, position: Position) -> Meter:
    """The meter after one more position; one that is not newer than the last adds nothing."""
    if meter.last_at is not None and position.at <= meter.last_at:
        return meter
    leg = 0 if meter.last_at is None else geo.distance_mm(meter.last_lat, meter.last_lng, position.lat, position.lng)
    return Meter(
        positions=meter.positions + 1,
        distance_mm=meter.distance_mm + leg,
        started_at=meter.started_at or position.at,
        last_at=position.at,
        last_lat=position.lat,
        last_lng=position.lng,
    )


def price_cents(meter: Meter, surge_percent: int) -> int:
    """The price in cents, rounded half up: base, distance and time, together times the surge."""
    started, ended = meter.started_at, meter.last_at
    microseconds = 0 if started is None or ended is None else (ended - started) // _MICROSECOND
    # Over a common denominator, so that nothing is rounded before the end.
    kilometre, minute = 1_000_000, 60_000_000
    plain = (
        BASE_CENTS * kilometre * minute
        + CENTS_PER_KM * meter.distance_mm * minute
        + CENTS_PER_MINUTE * microseconds * kilometre
    )
    whole = kilometre * minute * 100
    return (2 * plain * surge_percent + whole) // (2 * whole)


def drive(ride: Ride, position: Position, offset: int) -> Ride:
    """The ride after a position of its driver; as it was if that is known already or says nothing of this ride.

    The meter takes the ride's positions in the order in which they are stored, from the first with the rider in the car up to the
    drop-off. What is stored behind the drop-off is not of the ride any more, so nothing can come too late for its fare.
    """
    if offset <= ride.last_position_offset or position.ride_id != ride.ride_id or position.driver_id != ride.driver_id:
        return ride
    if ride.status not in {Status.MATCHED, Status.ON_RIDE} or position.phase not in METERED:
        return ride
    meter = add(ride.meter, position)
    after = replace(
        ride,
        status=Status.ON_RIDE,
        meter=meter,
        first_position_offset=offset if ride.first_position_offset < 0 else ride.first_position_offset,
        last_position_offset=offset,
    )
    if position.phase is Phase.DROPPED_OFF:
        return replace(after, status=Status.ENDED, fare_cents=price_cents(meter, ride.surge_percent))
    return after


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A position as the topic has it: the record's offset, key and timestamp, and the value."""

    offset: int
    key: str | None
    recorded_at: dt.datetime
    position: Position | None


def recompute(ride: Ride, stored: Iterable[Stored]) -> tuple[Meter, int]:
    """The meter and the fare in cents by what is stored in the ride's partition, offsets ascending, and nothing else.

    The same as the service came to while the ride went on; what the service put aside as impossible is left out here, too.
    """
    meter = Meter()
    for stored_position in stored:
        if not ride.first_position_offset <= stored_position.offset <= ride.last_position_offset:
            continue
        try:
            position = matching.check_position(
                stored_position.position, key=stored_position.key, recorded_at=stored_position.recorded_at
            )
        except (matching.Impossible, geo.OffTheMap):
            continue
        counts = (position.ride_id, position.driver_id) == (ride.ride_id, ride.driver_id)
        if counts and position.phase in METERED:
            meter = add(meter, position)
    return meter, price_cents(meter, ride.surge_percent)
