"""The events, as they are in the topics.

Here: the types whose Avro schemas are in the registry.
Not here: what follows from them (`matching`, `surge`, `fares`).

A driver's device reports its place about once a second, and with it what it is doing: the drop-off is a position like the others. So
all that a ride costs is in one topic, in one order, and nothing of a ride comes after its end.
"""

import datetime as dt
import enum
from dataclasses import dataclass, field


class Phase(enum.Enum):
    """What a driver is doing at a position."""

    FREE = "FREE"
    TO_PICKUP = "TO_PICKUP"
    PICKED_UP = "PICKED_UP"
    """The first position with the rider in the car: the meter starts."""
    ON_RIDE = "ON_RIDE"
    DROPPED_OFF = "DROPPED_OFF"
    """The last position of a ride: the meter stops."""


@dataclass(slots=True, kw_only=True)
class Position:
    """Where a driver is.

    Attributes:
        driver_id: whose.
        city: in whose map; the topic is partitioned by it.
        lat, lng: degrees, WGS 84.
        at: when, by the device, in UTC.
        phase: what the driver is doing.
        ride_id: for which ride; None while free.
    """

    __avro_namespace__ = "gettaxi"

    driver_id: str
    city: str
    lat: float
    lng: float
    at: dt.datetime
    phase: Phase = Phase.FREE
    ride_id: str | None = None


@dataclass(slots=True, kw_only=True)
class RiderPosition:
    """Where a rider is, from the request to the drop-off. Nothing is decided by it: it is kept for later questions about a ride.

    Attributes:
        rider_id: whose.
        ride_id: on the way of which ride.
        city: in whose map; the topic is partitioned by it.
        lat, lng: degrees, WGS 84.
        at: when, by the device, in UTC.
    """

    __avro_namespace__ = "gettaxi"

    rider_id: str
    ride_id: str
    city: str
    lat: float
    lng: float
    at: dt.datetime


class Ask(enum.Enum):
    """What riders and drivers ask for."""

    REQUESTED = "REQUESTED"
    CANCELLED = "CANCELLED"
    DECLINED = "DECLINED"


@dataclass(slots=True, kw_only=True)
class Command:
    """A rider wants a ride or gives it up, or a driver declines one.

    Attributes:
        ask: which.
        ride_id: chosen by the rider's device, so that a request sent twice is one ride.
        city: in whose map.
        at: when, in UTC.
        rider_id: who asks, for REQUESTED.
        lat, lng: where the rider waits, for REQUESTED.
        driver_id: who declines, for DECLINED.
    """

    __avro_namespace__ = "gettaxi"

    ask: Ask
    ride_id: str
    city: str
    at: dt.datetime
    rider_id: str | None = None
    lat: float | None = None
    lng: float | None = None
    driver_id: str | None = None


class Status(enum.Enum):
    """Where a ride stands.

    WAITING → MATCHED, CANCELLED, EXPIRED · MATCHED → ON_RIDE, WAITING (declined, or the driver fell silent), CANCELLED · ON_RIDE → ENDED
    """

    WAITING = "WAITING"
    MATCHED = "MATCHED"
    ON_RIDE = "ON_RIDE"
    ENDED = "ENDED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"


@dataclass(slots=True, kw_only=True)
class Meter:
    """What the stored positions of a ride add up to.

    Attributes:
        positions: how many.
        distance_mm: sum of the legs, each rounded to a millimetre, so that every order of adding gives the same.
        started_at, last_at: the first and the newest position.
        last_lat, last_lng: where that was.
    """

    __avro_namespace__ = "gettaxi"

    positions: int = 0
    distance_mm: int = 0
    started_at: dt.datetime | None = None
    last_at: dt.datetime | None = None
    last_lat: float = 0.0
    last_lng: float = 0.0


@dataclass(slots=True, kw_only=True)
class Ride:
    """A ride; the newest one for each id stays in the compacted topic. It is the one place that says whom a driver drives.

    Attributes:
        ride_id, city, rider_id: which.
        status: where it stands.
        lat, lng: where the rider waits.
        requested_at: event time of the request.
        surge_percent: what the price is multiplied by, fixed at the request; 100 is the plain price.
        driver_id: who was matched; None before that.
        declined: drivers who do not want it.
        matched_at: event time of the match.
        meter: what the positions add up to.
        fare_cents: what it costs, once it has ended.
        first_position_offset, last_position_offset: which stored positions the meter has seen; what is at or below the last is known.
        last_command_offset: the newest command that went in.
    """

    __avro_namespace__ = "gettaxi"

    ride_id: str
    city: str
    rider_id: str
    status: Status
    lat: float
    lng: float
    requested_at: dt.datetime
    surge_percent: int = 100
    driver_id: str | None = None
    declined: list[str] = field(default_factory=list)
    matched_at: dt.datetime | None = None
    meter: Meter = field(default_factory=Meter)
    fare_cents: int | None = None
    first_position_offset: int = -1
    last_position_offset: int = -1
    last_command_offset: int = -1


@dataclass(slots=True, kw_only=True)
class Surge:
    """What a cell's window says of the price; the newest one for each cell stays in the compacted topic.

    Attributes:
        cell: H3 index.
        city: in whose map.
        window_end: end of the event-time window.
        demand: rides requested in it, there.
        supply: drivers that reported to be free in it, there.
        percent: what prices are multiplied by.
    """

    __avro_namespace__ = "gettaxi"

    cell: str
    city: str
    window_end: dt.datetime
    demand: int
    supply: int
    percent: int = 100
