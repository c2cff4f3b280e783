"""The events, as they are in the topics.

Here: the types whose Avro schemas are in the registry.
Not here: what follows from them (`domain`).
"""

import datetime as dt
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Position:
    """A truck tells where it is, every 20 seconds; the key is the truck, so a truck's positions are in order.

    Attributes:
        truck_id: such as truck-017.
        latitude, longitude: in degrees, WGS 84.
        speed_kmh: as the truck measures it.
        fuel_percent: of a full tank.
        at: when, in UTC.
    """

    __avro_namespace__ = "ingestion"

    truck_id: str
    latitude: float
    longitude: float
    speed_kmh: float
    fuel_percent: float
    at: dt.datetime


@dataclass(slots=True, kw_only=True)
class Truck:
    """What is known of a truck; the newest one stays in the compacted topic `trucks`.

    Attributes:
        truck_id: which.
        newest: its last position.
        positions: how many went in.
        low: whether it is low on fuel; it has to fill up well above the limit before it can be low again.
        last_offset: of the last position in its partition; what is at or below it is known already.
    """

    __avro_namespace__ = "ingestion"

    truck_id: str
    newest: Position
    positions: int
    low: bool
    last_offset: int


@dataclass(slots=True, kw_only=True)
class LowFuel:
    """A truck runs out of fuel; in the topic `TRUCK_ALERTS`, by truck.

    Attributes:
        alert_id: `<truck>@<offset>` of the position that caused it: the same however often that position is handled.
        truck_id: which.
        fuel_percent, latitude, longitude, at: as that position says.
        offset: of that position.
    """

    __avro_namespace__ = "ingestion"

    alert_id: str
    truck_id: str
    fuel_percent: float
    latitude: float
    longitude: float
    at: dt.datetime
    offset: int
